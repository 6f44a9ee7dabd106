// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushared::ptx {
namespace {

using testing::HasSubstr;

constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kEntryBytes = 64;
constexpr std::uint64_t kLz4 = 0x2000;
constexpr std::uint64_t kZstd = 0x8000;

template <typename T>
void Store(std::string& bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

struct EntrySpec {
  std::uint16_t kind = 1;
  std::uint32_t architecture = 75;
  std::uint64_t flags = 0;
  std::string payload;
  std::uint32_t compressed_bytes = 0;
  std::uint64_t raw_bytes = 0;
};

std::string GetEntry(const EntrySpec& spec) {
  std::string bytes(kEntryBytes, '\0');
  Store(bytes, 0, spec.kind);
  Store(bytes, 4, std::uint32_t{kEntryBytes});
  Store(bytes, 8, std::uint64_t{spec.payload.size()});
  Store(bytes, 16, spec.compressed_bytes);
  Store(bytes, 28, spec.architecture);
  Store(bytes, 40, spec.flags);
  Store(bytes, 56, spec.raw_bytes);
  return bytes + spec.payload;
}

std::string ToFatbin(const std::string& entries) {
  std::string bytes(kHeaderBytes, '\0');
  Store(bytes, 0, std::uint32_t{0xBA55ED50});
  Store(bytes, 4, std::uint16_t{1});
  Store(bytes, 6, std::uint16_t{kHeaderBytes});
  Store(bytes, 8, std::uint64_t{entries.size()});
  return bytes + entries;
}

EntrySpec ZstdSpec(const std::string& text, std::uint32_t architecture = 75) {
  EntrySpec spec{.architecture = architecture, .flags = kZstd, .raw_bytes = text.size()};
  spec.payload.resize(ZSTD_compressBound(text.size()));
  spec.payload.resize(
      ZSTD_compress(spec.payload.data(), spec.payload.size(), text.data(), text.size(), 3));
  spec.compressed_bytes = static_cast<std::uint32_t>(spec.payload.size());
  return spec;
}

EntrySpec Lz4Spec(const std::string& text) {
  EntrySpec spec{.flags = kLz4, .raw_bytes = text.size()};
  const int size = static_cast<int>(text.size());
  spec.payload.resize(static_cast<std::size_t>(LZ4_compressBound(size)));
  spec.payload.resize(static_cast<std::size_t>(LZ4_compress_default(
      text.data(), spec.payload.data(), size, static_cast<int>(spec.payload.size()))));
  spec.compressed_bytes = static_cast<std::uint32_t>(spec.payload.size());
  return spec;
}

Result<std::string> Extract(std::string_view image) {
  // A copy of exact size, so that the address sanitizer detects a read of one byte too many.
  const std::vector<char> exact(image.begin(), image.end());
  return ExtractPtx(std::as_bytes(std::span(exact)));
}

std::string NvccFatbin() {
  std::ifstream file(std::filesystem::path(GPUSHARED_TEST_PTX_DIR) / "shared_reduce.fatbin",
                     std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

const std::string kText = ".version 9.0\n.target sm_75\n// " + std::string(300, 'x') + "\n";

TEST(Fatbin, TextIsTakenAsItIs) { EXPECT_EQ(*Extract(kText), kText); }

TEST(Fatbin, PtxOfNvccsOwnFatbinIsFound) {
  const Result<std::string> text = Extract(NvccFatbin());
  ASSERT_TRUE(text) << text.status().message();
  EXPECT_THAT(*text, HasSubstr(".target sm_75"));
  EXPECT_THAT(*text, HasSubstr(".entry reduce"));
}

TEST(Fatbin, EveryCompressionIsUndone) {
  for (const EntrySpec& spec : {EntrySpec{.payload = kText}, ZstdSpec(kText), Lz4Spec(kText)}) {
    const Result<std::string> text = Extract(ToFatbin(GetEntry(spec)));
    ASSERT_TRUE(text) << text.status().message();
    EXPECT_EQ(*text, kText);
  }
}

TEST(Fatbin, PtxOfTheNewestArchitectureWins) {
  const std::string entries =
      GetEntry(ZstdSpec("old one", 70)) + GetEntry(ZstdSpec("the newest", 90)) +
      GetEntry({.kind = 2, .architecture = 100, .payload = "machine code"}) +
      GetEntry(ZstdSpec("middle", 80));
  EXPECT_EQ(*Extract(ToFatbin(entries)), "the newest");
}

TEST(Fatbin, DetectsMachineCodeNewerThanThePtx) {
  const auto has_newer = [](std::string_view image) {
    return HasNewerMachineCode(std::as_bytes(std::span(image)));
  };
  const std::string ptx = GetEntry({.architecture = 80, .payload = kText});
  const auto code = [](std::uint32_t architecture) {
    return GetEntry({.kind = 2, .architecture = architecture, .payload = "code"});
  };
  EXPECT_FALSE(has_newer(kText));
  EXPECT_FALSE(has_newer(ToFatbin(ptx)));
  EXPECT_FALSE(has_newer(ToFatbin(code(75) + ptx + code(80))));
  EXPECT_TRUE(has_newer(ToFatbin(code(75) + code(90) + ptx)));
  EXPECT_FALSE(has_newer(ToFatbin(code(90) + ptx).substr(0, 100))) << "a truncated fatbin";
}

TEST(Fatbin, MachineCodeOnlyIsRejectedWithItsArchitectures) {
  const std::string entries = GetEntry({.kind = 2, .architecture = 90, .payload = "x"}) +
                              GetEntry({.kind = 2, .architecture = 80, .payload = "y"});
  const Status status = Extract(ToFatbin(entries)).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("machine code only: sm_80 sm_90"));
  EXPECT_EQ(Extract("\x7f"
                    "ELF and so on")
                .status()
                .code(),
            StatusCode::kUnsupported);
}

TEST(Fatbin, RejectsWhatIsNeitherTextNorFatbin) {
  for (const std::string& image :
       {std::string(), std::string("\0\1\2", 3), std::string(100, '\xff'),
        std::string("\xb1\x43\x62\x46 wrapper")}) {
    EXPECT_EQ(Extract(image).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(Fatbin, ChecksSizesBeforeAllocating) {
  EntrySpec bomb = ZstdSpec(kText);
  bomb.raw_bytes = UINT64_MAX;
  EXPECT_FALSE(Extract(ToFatbin(GetEntry(bomb))));
  bomb.raw_bytes = kPtxBytesMax + 1;
  EXPECT_THAT(Extract(ToFatbin(GetEntry(bomb))).status().message(),
              HasSubstr("67108865 bytes, allowed: 67108864"));
  const EntrySpec plain = {.payload = std::string(kPtxBytesMax + 1, 'x')};
  EXPECT_THAT(Extract(ToFatbin(GetEntry(plain))).status().message(),
              HasSubstr("67108865 bytes, allowed: 67108864"));
  EntrySpec liar = ZstdSpec(kText);
  liar.raw_bytes = kText.size() - 1;
  EXPECT_FALSE(Extract(ToFatbin(GetEntry(liar))));
  liar.raw_bytes = kText.size() + 1;
  EXPECT_FALSE(Extract(ToFatbin(GetEntry(liar))));
  liar = Lz4Spec(kText);
  liar.raw_bytes = kText.size() - 1;
  EXPECT_FALSE(Extract(ToFatbin(GetEntry(liar))));
  liar.raw_bytes = kText.size() + 1;
  EXPECT_FALSE(Extract(ToFatbin(GetEntry(liar))));
  for (EntrySpec reader : {Lz4Spec(kText), ZstdSpec(kText)}) {
    reader.compressed_bytes += 1;
    // The compressed bytes would reach into the next entry, whose bytes must not be read.
    const auto text = Extract(ToFatbin(GetEntry(reader) + GetEntry({.kind = 2, .payload = "a"})));
    EXPECT_THAT(text.status().message(), HasSubstr("compressed bytes"));
  }
  std::string many;
  for (std::size_t i = 0; i <= kFatbinEntriesMax; ++i) many += GetEntry({.payload = "a"});
  EXPECT_THAT(Extract(ToFatbin(many)).status().message(), HasSubstr("more than 256 entries"));
}

TEST(Fatbin, RejectsTooSmallHeader) {
  std::string image = ToFatbin(GetEntry({.payload = kText}));
  Store(image, 6, std::uint16_t{15});
  EXPECT_THAT(Extract(image).status().message(), HasSubstr("header size 15"));
}

TEST(Fatbin, RejectsTooSmallEntryHeader) {
  for (const std::uint32_t bytes : {0u, 1u, 63u}) {
    std::string entry = GetEntry({.payload = kText});
    Store(entry, 4, bytes);
    EXPECT_THAT(Extract(ToFatbin(entry)).status().message(),
                HasSubstr("entry header of " + std::to_string(bytes) + " bytes"));
  }
}

TEST(Fatbin, EveryTruncationIsRejected) {
  const std::string image = ToFatbin(GetEntry(ZstdSpec(kText)));
  EXPECT_FALSE(Extract(""));
  // A text of one byte is accepted, because it is a letter and might be PTX.
  for (std::size_t size = 2; size < image.size(); ++size) {
    EXPECT_FALSE(Extract(image.substr(0, size))) << size;
  }
}

TEST(Fatbin, DamagedHeadersCauseNoReadBeyondTheImage) {
  for (const std::string& good : {ToFatbin(GetEntry(ZstdSpec(kText)) + GetEntry(Lz4Spec(kText))),
                                  ToFatbin(GetEntry({.payload = kText})), NvccFatbin()}) {
    for (std::size_t at = 0; at < std::min<std::size_t>(good.size(), kHeaderBytes + kEntryBytes);
         ++at) {
      for (const unsigned flip : {0x01u, 0x80u, 0xffu}) {
        std::string bad = good;
        bad[at] = static_cast<char>(static_cast<unsigned char>(bad[at]) ^ flip);
        const Result<std::string> text = Extract(bad);
        if (text) {
          EXPECT_LE(text->size(), kPtxBytesMax);
        }
        // The magic number, version and sizes of the header are all checked.
        if (at < 8) {
          EXPECT_FALSE(text) << at;
        }
      }
    }
  }
}

}  // namespace
}  // namespace gpushared::ptx
