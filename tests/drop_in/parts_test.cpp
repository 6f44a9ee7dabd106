// SPDX-License-Identifier: Apache-2.0
// Handles, addresses, images and object files, and the attributes and missing functions that the
// library reports.
#include <elf.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client_lib/drop_in/address_book.h"
#include "client_lib/drop_in/cuda_module.h"
#include "client_lib/drop_in/device_attributes.h"
#include "client_lib/drop_in/device_runtime_archive.h"
#include "client_lib/drop_in/entry_points.h"
#include "client_lib/drop_in/handle_table.h"
#include "client_lib/drop_in/missing_functions.h"
#include "client_lib/drop_in/object_file.h"
#include "tests/drop_in/archive.h"

namespace gpushared::drop_in {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MissingFunctionsTest, EachHasAReason) {
  EXPECT_THAT(std::string(WhyMissing("cuIpcGetMemHandle")),
              ::testing::HasSubstr("share no memory"));
  EXPECT_EQ(WhyMissing("cuLaunchKernel"), "");
  for (const Function& function : Functions()) {
    EXPECT_TRUE(function.is_implemented || !WhyMissing(function.symbol).empty()) << function.symbol;
  }
}

using IntTable = HandleTable<int, StreamHandle, HandleKind::kStream>;

TEST(HandleTableTest, RejectsStaleAndInvalidHandles) {
  IntTable table;
  const StreamHandle first = table.Insert(std::make_shared<int>(1));
  ASSERT_NE(table.Find(first), nullptr);
  EXPECT_EQ(*table.Find(first), 1);
  EXPECT_NE(table.Remove(first), nullptr);
  EXPECT_EQ(table.Find(first), nullptr);
  const StreamHandle second = table.Insert(std::make_shared<int>(2));
  EXPECT_NE(first, second) << "the table reuses the slot but not the handle";
  EXPECT_EQ(table.Find(first), nullptr);
  EXPECT_EQ(table.Remove(first), nullptr);
  const auto number = reinterpret_cast<std::uint64_t>(second);
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_EQ(table.Find(reinterpret_cast<StreamHandle>(number ^ (std::uint64_t{1} << bit))),
              nullptr);
  }
  EXPECT_EQ(table.Find(nullptr), nullptr);
}

TEST(HandleTableTest, RejectsHandlesOfOtherKinds) {
  IntTable streams;
  HandleTable<int, StreamHandle, HandleKind::kEvent> events;
  const StreamHandle stream = streams.Insert(std::make_shared<int>(1));
  static_cast<void>(events.Insert(std::make_shared<int>(2)));
  EXPECT_EQ(events.Find(stream), nullptr);
}

TEST(AddressBookTest, FindsByAnyAddressInsideAndRemovesByTheFirst) {
  AddressBook book;
  EXPECT_TRUE(book.Insert({.address = 0x1000, .bytes = 0x100, .context_id = 1}, {}));
  EXPECT_FALSE(book.Insert({.address = 0x10ff, .bytes = 1}, {}));
  EXPECT_FALSE(book.Insert({.address = 0xf00, .bytes = 0x101}, {}));
  EXPECT_TRUE(book.Insert({.address = 0xf00, .bytes = 0x100, .context_id = 2}, {}));
  EXPECT_TRUE(book.Insert({.address = 0x1100, .bytes = 1, .context_id = 1}, {}));
  EXPECT_EQ(book.Find(0x10ff)->address, 0x1000u);
  EXPECT_EQ(book.Find(0x1100)->address, 0x1100u);
  EXPECT_FALSE(book.Find(0x1101));
  EXPECT_FALSE(book.Find(0xeff));
  EXPECT_TRUE(book.Find(0x1000)->Holds(0x1000, 0x100));
  EXPECT_FALSE(book.Find(0x1000)->Holds(0x1001, 0x100));
  EXPECT_FALSE(book.Find(0x1000)->Holds(0x1001, ~std::size_t{0}));
  EXPECT_FALSE(book.Remove(0x1001, BlockKind::kDevice));
  EXPECT_FALSE(book.Remove(0x1000, BlockKind::kHost));
  book.RemoveContext(1);
  EXPECT_FALSE(book.Find(0x1000));
  EXPECT_TRUE(book.Remove(0xf00, BlockKind::kDevice));
}

TEST(ImageBytesTest, FindsEndOfTextAndSizeOfContainers) {
  EXPECT_EQ(ImageBytes(nullptr).size(), 0u);
  EXPECT_EQ(ImageBytes("").size(), 0u);
  EXPECT_EQ(ImageBytes("x").size(), 1u);
  EXPECT_EQ(ImageBytes(".version 7.0").size(), 12u);
  struct {
    std::uint32_t magic = 0xba55ed50;
    std::uint16_t version = 1, header_bytes = 16;
    std::uint64_t body_bytes = 24;
  } const fatbin;
  EXPECT_EQ(ImageBytes(&fatbin).size(), 40u);
  struct {
    std::uint32_t magic = 0x466243b1, version = 1;
    const void* data;
    const void* more = nullptr;
  } const wrapper{.data = &fatbin};
  EXPECT_EQ(ImageBytes(&wrapper).data(), reinterpret_cast<const std::byte*>(&fatbin));
}

TEST(DeviceRuntimeArchiveTest, RecognizesOnlyTheToolkitsLibrary) {
  using testing::Archive;
  const std::string whole = testing::DeviceRuntimeArchive();
  EXPECT_TRUE(IsDeviceRuntimeArchive(whole));
  const std::pair<std::string, std::string> names = {"//", "cuda_device_runtime.o/\n\n"};
  EXPECT_FALSE(IsDeviceRuntimeArchive(Archive({names})));
  EXPECT_FALSE(IsDeviceRuntimeArchive(Archive({names, {"/0", "code"}, {"/0", "more"}})));
  EXPECT_FALSE(IsDeviceRuntimeArchive(Archive({names, {"/0", "code"}, {"mine.o/", "more"}})));
  EXPECT_FALSE(
      IsDeviceRuntimeArchive(Archive({{"//", "something_else_of_mine.o/\n"}, {"/0", ""}})));
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(IsDeviceRuntimeArchive(whole.substr(0, bytes))) << bytes;
  }
  std::string huge = whole;
  huge.replace(huge.find("5 "), 10, "9999999999");
  EXPECT_FALSE(IsDeviceRuntimeArchive(huge));
}

// Returns an object file of three sections: a null section, the section names, and a section with
// this name and these bytes.
std::string Object(const std::string& name, const std::string& bytes) {
  const std::string texts = std::string(1, '\0') + name + '\0';
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = EM_X86_64;
  header.e_shoff = sizeof header;
  header.e_shnum = 3;
  header.e_shstrndx = 1;
  Elf64_Shdr sections[3] = {};
  sections[1].sh_type = sections[2].sh_type = SHT_PROGBITS;
  sections[1].sh_offset = sizeof header + sizeof sections;
  sections[1].sh_size = texts.size();
  sections[2].sh_name = 1;
  sections[2].sh_offset = sections[1].sh_offset + texts.size();
  sections[2].sh_size = bytes.size();
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) +
         std::string(reinterpret_cast<const char*>(sections), sizeof sections) + texts + bytes;
}

std::string SmallFatbin(char body, std::size_t bytes) {
  const std::uint64_t length = bytes;
  return std::string("\x50\xed\x55\xba\x01\x00\x10\x00", 8) +
         std::string(reinterpret_cast<const char*>(&length), sizeof length) +
         std::string(bytes, body);
}

TEST(ObjectFileTest, FatbinsOfAllSourcesAreFound) {
  const std::string first = SmallFatbin('a', 13), second = SmallFatbin('b', 8);
  const std::string both = first + std::string(3, '\0') + second;
  const std::string object = Object("__nv_relfatbin", both);
  EXPECT_THAT(GetFatbins(object), ElementsAre(first, second));
  EXPECT_THAT(GetFatbins(Object(".nv_fatbin", second)), ElementsAre(second));
  EXPECT_THAT(GetFatbins(Object(".data", second)), IsEmpty());
}

TEST(ObjectFileTest, FindsNothingInBrokenObjects) {
  const std::string fatbin = SmallFatbin('a', 8);
  const std::string object = Object("__nv_relfatbin", fatbin);
  for (std::size_t bytes = 0; bytes < object.size(); ++bytes) {
    EXPECT_THAT(GetFatbins(std::string_view(object).substr(0, bytes)), IsEmpty()) << bytes;
  }
  for (std::size_t at = 0; at < sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Shdr); at += 4) {
    std::string wild = object;
    wild.replace(at, 4, 4, '\xff');
    EXPECT_LE(GetFatbins(wild).size(), 1u) << at;
  }
  std::string long_body = fatbin;
  long_body.replace(8, 8, 8, '\xff');
  EXPECT_THAT(GetFatbins(Object("__nv_relfatbin", long_body)), IsEmpty());
}

// A GPU has many features that this library does not pass on, and a program that relied on them
// would fail later.
TEST(DeviceAttributesTest, ReportsHardwareButNotUnsupportedFeatures) {
  constexpr auto kConcurrentManagedAccess = static_cast<Attribute>(89);
  constexpr auto kMemoryPools = static_cast<Attribute>(115);
  DeviceProperties device;
  device.multiprocessors = 132;
  device.shared_bytes_per_block_max = 227 * 1024;
  device.attributes = {{.id = 75, .value = 9},
                       {.id = 89, .value = 1},
                       {.id = 102, .value = 1},
                       {.id = 106, .value = -5},
                       {.id = 115, .value = 1}};
  EXPECT_EQ(AttributeFor(device, Attribute::kComputeCapabilityMajor), 9);
  EXPECT_EQ(AttributeFor(device, Attribute::kMultiprocessors), 132);
  EXPECT_EQ(AttributeFor(device, Attribute::kSharedBytesPerBlockMax), 49152);
  EXPECT_EQ(AttributeFor(device, Attribute::kSharedBytesPerBlockOptIn), 227 * 1024);
  EXPECT_EQ(AttributeFor(device, kConcurrentManagedAccess), 0);
  EXPECT_EQ(AttributeFor(device, kMemoryPools), 1);
  EXPECT_EQ(AttributeFor(device, Attribute::kVirtualMemory), 1);
  EXPECT_EQ(AttributeFor(device, Attribute::kBlocksPerMultiprocessorMax), 0) << "never negative";
  EXPECT_EQ(AttributeFor(device, Attribute::kWarpThreads), 32)
      << "the default if the server sends no value";
}

}  // namespace
}  // namespace gpushared::drop_in
