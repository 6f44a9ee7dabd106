// SPDX-License-Identifier: Apache-2.0
#include "server/device/swap_store.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/device/memory_budget.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::device {
namespace {

constexpr std::uint64_t kWordsOfAStep = kMapPageBytes / sizeof(std::uint64_t);

// Memory like that of the cpu device's clients.
class Steps {
 public:
  explicit Steps(std::size_t count) {
    const std::size_t bytes = (count + 1) * kMapPageBytes;
    void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    mapped_ = {static_cast<std::byte*>(mapped), bytes};
    first_ = mapped_.data() + (-reinterpret_cast<std::uintptr_t>(mapped) % kMapPageBytes);
  }
  ~Steps() { munmap(mapped_.data(), mapped_.size()); }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  std::span<std::byte> At(std::size_t step) const {
    return {first_ + step * kMapPageBytes, kMapPageBytes};
  }
  // Fills the whole page with the number.
  void Fill(std::size_t step, std::uint64_t number) const {
    auto* const words = reinterpret_cast<std::uint64_t*>(At(step).data());
    std::fill_n(words, kWordsOfAStep, number);
  }
  bool IsFullOf(std::size_t step, std::uint64_t number) const {
    const auto* const words = reinterpret_cast<const std::uint64_t*>(At(step).data());
    return std::all_of(words, words + kWordsOfAStep, [&](auto word) { return word == number; });
  }
  bool HasMemory(std::size_t step) const {
    std::vector<unsigned char> pages(kMapPageBytes / kPageBytes);
    EXPECT_EQ(mincore(At(step).data(), kMapPageBytes, pages.data()), 0);
    return std::ranges::any_of(pages, [](unsigned char page) { return (page & 1) != 0; });
  }

 private:
  std::span<std::byte> mapped_;
  std::byte* first_ = nullptr;
};

class SwapStoreIn : public ::testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<SwapStore> Store(std::uint64_t steps) const {
    const bool is_file = std::string(GetParam()) == "AFile";
    return SwapStore::Create(
               {.bytes = steps * kMapPageBytes, .directory = is_file ? directory_.path() : ""})
        .value();
  }

 private:
  const gpushared::testing::ScratchDirectory directory_;
};

TEST_P(SwapStoreIn, HoldsExactlyItsCapacity) {
  const auto store = Store(4);
  ASSERT_TRUE(store->Reserve(3 * kMapPageBytes).ok());
  const Status rejected = store->Reserve(2 * kMapPageBytes);
  EXPECT_EQ(rejected.code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(rejected.message(), ::testing::HasSubstr("4 MiB of host memory requested"));
  EXPECT_THAT(rejected.message(), ::testing::HasSubstr("2 MiB of 8 MiB are left"));
  EXPECT_EQ(store->reserved_bytes(), 3 * kMapPageBytes);
  EXPECT_TRUE(store->Reserve(kMapPageBytes).ok());
  EXPECT_FALSE(store->Reserve(kMapPageBytes).ok());
  store->GiveBack(2 * kMapPageBytes);
  EXPECT_EQ(store->reserved_bytes(), 2 * kMapPageBytes);
  EXPECT_TRUE(store->Reserve(2 * kMapPageBytes).ok());
  EXPECT_FALSE(store->Reserve(kMapPageBytes).ok());
}

TEST_P(SwapStoreIn, TakenPageReadsAsZerosAndReturnsUnchanged) {
  const auto store = Store(2);
  ASSERT_TRUE(store->Reserve(2 * kMapPageBytes).ok());
  const Steps steps(1);
  steps.Fill(0, 7);
  const SwapStore::Slot slot = store->Take(steps.At(0)).value();
  EXPECT_FALSE(steps.HasMemory(0));
  EXPECT_TRUE(steps.IsFullOf(0, 0));
  EXPECT_EQ(store->used_bytes(), kMapPageBytes);
  EXPECT_GE(store->medium().populated_bytes(), kMapPageBytes);
  ASSERT_TRUE(store->Return(slot, steps.At(0)).ok());
  EXPECT_TRUE(steps.IsFullOf(0, 7));
  EXPECT_EQ(store->used_bytes(), 0U);
  store->GiveBack(2 * kMapPageBytes);
  EXPECT_EQ(store->medium().populated_bytes(), 0U) << "bytes are left in the store";
}

TEST_P(SwapStoreIn, UnwrittenPageReturnsEmptyFromReusedSlot) {
  const auto store = Store(1);
  ASSERT_TRUE(store->Reserve(kMapPageBytes).ok());
  const Steps steps(2);
  steps.Fill(0, 7);
  ASSERT_TRUE(store->Return(store->Take(steps.At(0)).value(), steps.At(0)).ok());
  const SwapStore::Slot slot = store->Take(steps.At(1)).value();
  ASSERT_TRUE(store->Return(slot, steps.At(1)).ok());
  EXPECT_TRUE(steps.IsFullOf(1, 0));
  EXPECT_TRUE(steps.IsFullOf(0, 7));
}

TEST_P(SwapStoreIn, FreeSlotIsAlwaysEmpty) {
  const auto store = Store(1);
  ASSERT_TRUE(store->Reserve(kMapPageBytes).ok());
  const std::vector<std::byte> secret(kMapPageBytes, std::byte{0x5a});
  const std::vector<std::byte> nothing(kMapPageBytes);
  std::vector<std::byte> read(kMapPageBytes);
  const SwapStore::Slot put = store->Put(secret).value();
  ASSERT_TRUE(store->Read(put, read).ok());
  EXPECT_EQ(read, secret);
  store->Drop(put);
  ASSERT_TRUE(store->Read(put, read).ok());
  EXPECT_EQ(read, nothing) << "a dropped slot has its last bytes";
  const Steps steps(1);
  steps.Fill(0, 7);
  const SwapStore::Slot taken = store->Take(steps.At(0)).value();
  store->Drop(taken);
  ASSERT_TRUE(store->Read(taken, read).ok());
  EXPECT_EQ(read, nothing) << "a dropped slot has the bytes that it took";
  steps.Fill(0, 8);
  const SwapStore::Slot returned = store->Take(steps.At(0)).value();
  ASSERT_TRUE(store->Return(returned, steps.At(0)).ok());
  ASSERT_TRUE(store->Read(returned, read).ok());
  EXPECT_EQ(read, nothing) << "a returned slot has its last bytes";
}

// Each page has its own number, so that a slot that is used twice is noticed.
TEST_P(SwapStoreIn, ReturnsPagesUnchangedInAnyOrder) {
  constexpr std::size_t kSteps = 6;
  const auto store = Store(kSteps);
  ASSERT_TRUE(store->Reserve(kSteps * kMapPageBytes).ok());
  const Steps steps(kSteps);
  std::vector<std::uint64_t> numbers(kSteps, 0);
  std::map<std::size_t, SwapStore::Slot> out;
  std::mt19937_64 random(1);
  for (int round = 0; round < 120; ++round) {
    const std::size_t step = random() % kSteps;
    const auto found = out.find(step);
    if (found == out.end()) {
      if (random() % 2 == 0) steps.Fill(step, numbers[step] = random());
      out[step] = store->Take(steps.At(step)).value();
      continue;
    }
    if (random() % 4 == 0) {
      store->Drop(found->second);
      numbers[step] = 0;
    } else {
      ASSERT_TRUE(store->Return(found->second, steps.At(step)).ok());
    }
    out.erase(found);
    ASSERT_TRUE(steps.IsFullOf(step, numbers[step])) << "round " << round << ", step " << step;
    ASSERT_EQ(store->used_bytes(), out.size() * kMapPageBytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Media, SwapStoreIn, ::testing::Values("Memory", "AFile"),
                         [](const auto& medium) { return std::string(medium.param); });

// ---- in memory

std::size_t Mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

TEST(SwapStoreInMemory, SwapsLeaveNoMappingsBehind) {
  constexpr std::size_t kSteps = 8;
  const auto store = SwapStore::Create({.bytes = kSteps * kMapPageBytes, .directory = ""}).value();
  ASSERT_TRUE(store->Reserve(kSteps * kMapPageBytes).ok());
  const Steps steps(kSteps);
  for (std::size_t step = 0; step < kSteps; ++step) steps.Fill(step, step);
  const std::size_t before = Mappings();
  for (int round = 0; round < 20; ++round) {
    std::vector<SwapStore::Slot> slots(kSteps);
    // In a different order each time, so that pages change their slots.
    for (std::size_t taken = 0; taken < kSteps; ++taken) {
      const std::size_t step = (3 * taken + static_cast<std::size_t>(round)) % kSteps;
      slots[step] = store->Take(steps.At(step)).value();
    }
    for (std::size_t step = 0; step < kSteps; ++step) {
      ASSERT_TRUE(store->Return(slots[step], steps.At(step)).ok());
    }
  }
  EXPECT_LE(Mappings(), before + 2) << "the heap may have grown; each slot has not";
  for (std::size_t step = 0; step < kSteps; ++step) EXPECT_TRUE(steps.IsFullOf(step, step));
}

// Runs `act` as on a kernel that cannot move pages, or that has no mapping left. Runs it on a new
// thread, because a system-call filter lasts as long as the thread that installed it.
void WherePagesDoNotMove(const std::function<void()>& act) {
  std::thread([&act] {
    std::array reject{
        sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 0, 1),
        sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{.len = reject.size(), .filter = reject.data()};
    ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
    act();
  }).join();
}

TEST(SwapStoreInMemory, CopiesBytesWherePagesCannotMove) {
  const auto store = SwapStore::Create({.bytes = 2 * kMapPageBytes, .directory = ""}).value();
  ASSERT_TRUE(store->Reserve(2 * kMapPageBytes).ok());
  const Steps steps(2);
  steps.Fill(0, 7);
  steps.Fill(1, 8);
  SwapStore::Slot first = 0, second = 0;
  WherePagesDoNotMove([&] { first = store->Take(steps.At(0)).value(); });
  EXPECT_FALSE(steps.HasMemory(0));
  second = store->Take(steps.At(1)).value();
  ASSERT_TRUE(store->Return(first, steps.At(0)).ok());
  WherePagesDoNotMove([&] { ASSERT_TRUE(store->Return(second, steps.At(1)).ok()); });
  EXPECT_TRUE(steps.IsFullOf(0, 7));
  EXPECT_TRUE(steps.IsFullOf(1, 8));
  store->GiveBack(2 * kMapPageBytes);
  EXPECT_EQ(store->medium().populated_bytes(), 0U);
}

// Pages that were copied must not be moved back, because they would bring the store's mapping to
// the client, and no bytes of the client may remain in the store.
TEST(SwapStoreInMemory, CopiesBytesBackAndErasesThem) {
  const auto store = SwapStore::Create({.bytes = kMapPageBytes, .directory = ""}).value();
  ASSERT_TRUE(store->Reserve(kMapPageBytes).ok());
  const Steps steps(1);
  steps.Fill(0, 7);
  SwapStore::Slot slot = 0;
  WherePagesDoNotMove([&] { slot = store->Take(steps.At(0)).value(); });
  const std::uint64_t populated = store->medium().populated_bytes();
  ASSERT_TRUE(store->Return(slot, steps.At(0)).ok());
  EXPECT_EQ(store->medium().populated_bytes(), populated) << "they went with the client's";
  EXPECT_TRUE(steps.IsFullOf(0, 7));
  std::vector<std::byte> read(kMapPageBytes, std::byte{1});
  ASSERT_TRUE(store->Read(slot, read).ok());
  EXPECT_EQ(read, std::vector<std::byte>(kMapPageBytes));
}

TEST(SwapStoreInMemory, DroppedSlotKeepsZeroedPagesUntilLastReservationEnds) {
  const auto store = SwapStore::Create({.bytes = 2 * kMapPageBytes, .directory = ""}).value();
  ASSERT_TRUE(store->Reserve(2 * kMapPageBytes).ok());
  const std::vector<std::byte> secret(kMapPageBytes, std::byte{0x5a});
  std::vector<std::byte> read(kMapPageBytes);
  const SwapStore::Slot slot = store->Put(secret).value();
  store->Drop(slot);
  EXPECT_EQ(store->used_bytes(), 0U);
  if (store->medium().populated_bytes() < kMapPageBytes) {
    GTEST_SKIP() << "this machine is short of memory, and took the pages back at once";
  }
  ASSERT_TRUE(store->Read(slot, read).ok());
  EXPECT_EQ(read, std::vector<std::byte>(kMapPageBytes));
  // A client's page that is moved into the slot replaces the slot's own memory, and leaves the slot
  // empty when it is moved back.
  const Steps steps(1);
  steps.Fill(0, 7);
  const SwapStore::Slot taken = store->Take(steps.At(0)).value();
  ASSERT_TRUE(store->Return(taken, steps.At(0)).ok());
  EXPECT_EQ(store->medium().populated_bytes(), 0U);
  EXPECT_TRUE(steps.IsFullOf(0, 7));
  store->Drop(store->Put(secret).value());
  store->Drop(store->Take(steps.At(0)).value());
  EXPECT_EQ(store->medium().populated_bytes(), 0U) << "a client's own pages are kept";
  store->Drop(store->Put(secret).value());
  store->GiveBack(kMapPageBytes);
  store->GiveBack(kMapPageBytes);
  EXPECT_EQ(store->medium().populated_bytes(), 0U) << "they go with the last reservation";
}

TEST(SwapStoreInMemory, IsExcludedFromCoreDumpsAndChildren) {
  const auto store = SwapStore::Create({.bytes = 64 * kMapPageBytes, .directory = ""}).value();
  ASSERT_TRUE(store->Reserve(kMapPageBytes).ok());
  const Steps steps(1);
  steps.Fill(0, 7);
  const SwapStore::Slot slot = store->Take(steps.At(0)).value();
  ASSERT_TRUE(store->Return(slot, steps.At(0)).ok());
  ASSERT_TRUE(store->Put(steps.At(0)).ok());
  std::ifstream maps("/proc/self/smaps");
  std::string line, flags;
  bool is_store = false;
  const std::string size = std::to_string(64 * kMapPageBytes / 1024) + " kB";
  while (std::getline(maps, line)) {
    if (line.starts_with("Size:")) is_store = line.ends_with(" " + size);
    if (is_store && line.starts_with("VmFlags:")) flags = line;
  }
  if (flags.empty()) GTEST_SKIP() << "this system shows no mapping flags";
  EXPECT_THAT(flags, ::testing::HasSubstr(" dd"));
  EXPECT_THAT(flags, ::testing::HasSubstr(" dc"));
}

// ---- in a file

TEST(SwapStoreInAFile, IsUnnamedPrivateAndPreallocated) {
  const gpushared::testing::ScratchDirectory directory;
  const auto store =
      SwapStore::Create({.bytes = 8 * kMapPageBytes, .directory = directory.path()}).value();
  struct stat facts {};
  ASSERT_EQ(fstat(store->medium().fd(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777U, 0600U);
  EXPECT_EQ(facts.st_nlink, 0U);
  ASSERT_TRUE(store->Reserve(2 * kMapPageBytes).ok());
  EXPECT_GE(store->medium().populated_bytes(), 2 * kMapPageBytes);
  const std::vector<std::byte> bytes(kMapPageBytes, std::byte{0x5a});
  store->Drop(store->Put(bytes).value());
  EXPECT_GE(store->medium().populated_bytes(), 2 * kMapPageBytes)
      << "what is reserved has lost its blocks";
  store->GiveBack(2 * kMapPageBytes);
  EXPECT_EQ(store->medium().populated_bytes(), 0U);
}

TEST(SwapStoreInAFile, IsRejectedWhereNoFileCanBeCreated) {
  const Status rejected = SwapStore::Create({.bytes = 1 << 30, .directory = "/proc"}).status();
  EXPECT_THAT(rejected.message(), ::testing::HasSubstr("'/proc'"));
}

}  // namespace
}  // namespace gpushared::device
