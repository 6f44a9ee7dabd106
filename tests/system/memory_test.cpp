// SPDX-License-Identifier: Apache-2.0
// Clients of a real server that hold more memory than their device has. GPUSHARED_MEMORY_TURNS=N
// sets the number of swap-outs of three clients that take turns, and of visits of high clients.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/server_process.h"
#include "tests/system/memory_case.h"

namespace gpushared::testing {
namespace {

// Memory of each client on a device of 64 MiB; three of them need 102 MiB.
constexpr std::size_t kMostOfAThird = 34 * kMebi;

// Three clients whose memory does not fit at once, so they take turns.
class MemoryOfThreeClients : public MemoryBeyondTheDevice {
 protected:
  using MemoryBeyondTheDevice::MemoryBeyondTheDevice;
  void TakeTurns();
};

void MemoryOfThreeClients::TakeTurns() {
  const char* const asked = std::getenv("GPUSHARED_MEMORY_TURNS");
  const std::uint64_t turns = asked == nullptr ? 3 : std::strtoull(asked, nullptr, 10);
  std::atomic<bool> is_over = false;
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  const std::string names[] = {"one", "two", "three"};
  for (const std::string& name : names) {
    threads.emplace_back([&] {
      const Client client = Connect(name);
      Numbers numbers(client, kMostOfAThird);
      for (std::size_t round = 0; !is_over; ++round) {
        const Status step = numbers.Step(round);
        ASSERT_TRUE(step.ok()) << step.ToString();
      }
      right += numbers.AreRight();
    });
  }
  EXPECT_TRUE(Eventually(
      [&] {
        std::uint64_t taken = 0;
        for (const std::string& name : names) taken += Figure(name, "swap_outs");
        return taken >= turns;
      },
      std::chrono::seconds(60) + std::chrono::seconds(1) * turns));
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 3);
  EXPECT_TRUE(Eventually([&] { return InStore("reserved_bytes") == 0; }));
  EXPECT_EQ(InStore("used_bytes"), 0u);
}

TEST_F(MemoryOfThreeClients, AlternateAndComputeCorrectly) { TakeTurns(); }

TEST_F(MemoryBeyondTheDevice, CopyOfSwappedOutClientNeedsOnlyItsPages) {
  const Client first = Connect("first"), second = Connect("second");
  constexpr std::size_t kPart = 4096;
  const DeviceBuffer buffer = first.AllocateDevice(kMostOfAThird).value();
  std::vector<std::byte> written(kMostOfAThird);
  for (std::size_t i = 0; i < written.size(); ++i) written[i] = static_cast<std::byte>(i / 5 + 1);
  const Stream stream = first.default_stream();
  ASSERT_TRUE(stream.CopyToDevice(buffer.address(), written.data(), written.size()).ok());
  ASSERT_TRUE(first.Synchronize().ok());
  Numbers others(second, kMostOfAThird);
  ASSERT_TRUE(others.Step(0).ok());
  ASSERT_GE(Figure("first", "swapped_out_bytes"), 4 * kMebi);
  // Reads a part of each page, backwards from the last page. The first read of a page that is
  // swapped out must swap in that page alone.
  bool has_come_in = false;
  for (std::size_t at = kMostOfAThird; at >= 2 * kMebi; at -= 2 * kMebi) {
    std::vector<std::byte> read(kPart);
    const std::size_t begin = at - kPart;
    ASSERT_TRUE(stream.CopyToHost(read.data(), buffer.address() + begin, kPart).ok());
    ASSERT_TRUE(stream.Synchronize().ok());
    EXPECT_TRUE(std::ranges::equal(read, std::span(written).subspan(begin, kPart))) << begin;
    if (has_come_in || Figure("first", "swapped_in_bytes") == 0) continue;
    has_come_in = true;
    EXPECT_EQ(Figure("first", "swapped_in_bytes"), 2 * kMebi);
    EXPECT_LT(Figure("first", "resident_bytes"), Figure("first", "memory_bytes"));
  }
  EXPECT_TRUE(has_come_in);
  EXPECT_TRUE(others.AreRight());
}

class MemoryOfThreeClientsOfAGpu : public MemoryOfThreeClients {
 protected:
  MemoryOfThreeClientsOfAGpu() : MemoryOfThreeClients("256MiB", "76M") {}
};

TEST_F(MemoryOfThreeClientsOfAGpu, AlternateAndComputeCorrectly) { TakeTurns(); }

TEST_F(MemoryBeyondTheDevice, HighClientGetsItsGuaranteeAsZeroedMemory) {
  const Client low = Connect("low"), other = Connect("other");
  Numbers numbers(low, kMostOfAThird), others(other, 26 * kMebi);
  // The low clients use the whole device, so the high client's memory requires swaps.
  const Client high = Connect("high", SchedulingClass::kHigh);
  const Result<DeviceBuffer> mine = high.AllocateDevice(12 * kMebi);
  ASSERT_TRUE(mine.ok()) << mine.status().ToString();
  std::vector<std::byte> bytes(12 * kMebi, std::byte{1});
  ASSERT_TRUE(high.default_stream().CopyToHost(bytes.data(), mine->address(), bytes.size()).ok());
  ASSERT_TRUE(high.Synchronize().ok());
  EXPECT_EQ(bytes, std::vector<std::byte>(bytes.size())) << "bytes of another client";
  EXPECT_EQ(Figure("high", "resident_bytes"), Figure("high", "memory_bytes"));
  EXPECT_GE(Figure("low", "swapped_out_bytes") + Figure("other", "swapped_out_bytes"), 4 * kMebi);
  EXPECT_EQ(Figure("high", "guaranteed_bytes"), 64 * kMebi / 5);
  EXPECT_TRUE(numbers.AreRight());
  EXPECT_TRUE(others.AreRight());
}

// Prints what the thrashing costs the high clients; only their results are asserted.
TEST_F(MemoryBeyondTheDevice, HighClientsConnectAndLeaveNextToTwoThrashingClients) {
  using Clock = std::chrono::steady_clock;
  const char* const asked = std::getenv("GPUSHARED_MEMORY_TURNS");
  const std::size_t visits = asked == nullptr ? 2 : std::strtoull(asked, nullptr, 10);
  std::atomic<bool> is_over = false;
  std::atomic<int> right = 0;
  std::atomic<std::size_t> rounds = 0;
  std::vector<std::thread> threads;
  for (const std::string name : {"one", "two"}) {
    threads.emplace_back([&, name] {
      const Client client = Connect(name);
      Numbers numbers(client, kMostOfAThird);
      for (std::size_t round = 0; !is_over; ++round, ++rounds) {
        const Status step = numbers.Step(round);
        ASSERT_TRUE(step.ok()) << step.ToString();
      }
      right += numbers.AreRight();
    });
  }
  EXPECT_TRUE(Eventually([&] { return Figure("one", "swap_outs") > 0; }));
  std::vector<double> allocations, requests;
  const auto ms_since = [](Clock::time_point began) {
    return std::chrono::duration<double, std::milli>(Clock::now() - began).count();
  };
  for (std::size_t visit = 0; visit < visits; ++visit) {
    const Client high = Connect("high", SchedulingClass::kHigh);
    Clock::time_point began = Clock::now();
    Numbers numbers(high, 10 * kMebi);
    allocations.push_back(ms_since(began));
    for (std::size_t round = 0; round < 20; ++round) {
      began = Clock::now();
      ASSERT_TRUE(numbers.Step(round).ok());
      requests.push_back(ms_since(began));
    }
    EXPECT_TRUE(numbers.AreRight());
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 2);
  const auto tell = [](const char* what, std::vector<double>& times) {
    std::ranges::sort(times);
    std::printf("%s: p50 %.2f ms, p99 %.2f ms, worst %.2f ms\n", what, times[times.size() / 2],
                times[times.size() * 99 / 100], times.back());
  };
  tell("module, 10 MiB and the first copy", allocations);
  tell("request", requests);
  std::printf("rounds of the two: %zu\n", rounds.load());
}

TEST_F(MemoryBeyondTheDevice, KilledClientLeavesNothingOnDeviceOrInStore) {
  const Client first = Connect("first");
  Numbers numbers(first, kMostOfAThird);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ClientOptions options;
    options.socket = server().socket();
    options.name = "doomed";
    options.scheduling_class = SchedulingClass::kLow;
    const Result<Client> client = Client::Connect(options);
    if (!client.ok()) _exit(1);
    const Result<DeviceBuffer> buffer = client->AllocateDevice(kMostOfAThird);
    if (!buffer.ok() || write(ready[1], "x", 1) != 1) _exit(2);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  // Swaps out some of the memory of the client that will be killed.
  EXPECT_TRUE(numbers.Step(0).ok());
  EXPECT_TRUE(Eventually([&] { return Figure("doomed", "swapped_out_bytes") > 0; }));
  EXPECT_GE(InStore("reserved_bytes"), 2 * kMostOfAThird);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(Eventually([&] { return InStore("reserved_bytes") <= kMostOfAThird + 4 * kMebi; }));
  EXPECT_EQ(InStore("used_bytes"), 0u);
  const Client next = Connect("next");
  EXPECT_TRUE(next.AllocateDevice(kMostOfAThird - 8 * kMebi).ok());
  EXPECT_TRUE(numbers.AreRight());
}

TEST_F(MemoryBeyondTheDevice, ReportsGuaranteeAndMemoryWantedByOthers) {
  std::optional<DeviceBuffer> cache;
  std::atomic<std::uint64_t> told = 0;
  ClientOptions options;
  options.socket = server().socket();
  options.name = "holder";
  options.scheduling_class = SchedulingClass::kLow;
  options.on_memory_wanted = [&](std::uint64_t bytes) {
    told = bytes;
    cache.reset();
  };
  const Result<Client> holder = Client::Connect(options);
  ASSERT_TRUE(holder.ok()) << holder.status().ToString();
  Numbers numbers(*holder, 14 * kMebi);
  cache.emplace(holder->AllocateDevice(20 * kMebi).value());
  ASSERT_TRUE(Eventually([&] { return holder->memory_info().resident_bytes >= 34 * kMebi; }));
  const MemoryInfo before = holder->memory_info();
  EXPECT_EQ(before.guaranteed_bytes, 64 * kMebi / 5);
  EXPECT_EQ(before.total_bytes, 64 * kMebi * 3 / 5);
  EXPECT_EQ(before.wanted_bytes, 0u);
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    const Client client = Connect("other");
    Numbers others(client, kMostOfAThird);
    for (std::size_t round = 0; !is_over; ++round) ASSERT_TRUE(others.Step(round).ok());
    EXPECT_TRUE(others.AreRight());
  });
  for (std::size_t round = 0; told == 0 && round < 1'000'000; ++round) {
    ASSERT_TRUE(numbers.Step(round).ok());
  }
  EXPECT_GT(told, 0u);
  EXPECT_FALSE(cache);
  EXPECT_LE(holder->memory_info().mapped_bytes, before.mapped_bytes - 16 * kMebi) << "not trimmed";
  is_over = true;
  other.join();
  EXPECT_TRUE(numbers.AreRight());
}

TEST_F(MemoryBeyondTheDevice, OnlyClientsThatAreNeverSwappedGetChunks) {
  const Client low = Connect("low"), other = Connect("other");
  Numbers numbers(low, kMostOfAThird), others(other, 26 * kMebi);
  // The device has no free memory.
  ClientOptions options;
  options.socket = server().socket();
  options.memory_bytes = 12 * kMebi;
  const Result<Client> mapper = Client::Connect(options);
  ASSERT_TRUE(mapper.ok()) << mapper.status().ToString();
  const Result<DeviceChunk> chunk = mapper->CreateChunk(10 * kMebi);
  ASSERT_TRUE(chunk.ok()) << chunk.status().ToString();
  const DeviceAddress at = mapper->mapping_area().base;
  ASSERT_TRUE(mapper->MapChunk(*chunk, at).ok());
  std::vector<std::byte> bytes(10 * kMebi, std::byte{1});
  ASSERT_TRUE(mapper->default_stream().CopyToHost(bytes.data(), at, bytes.size()).ok());
  ASSERT_TRUE(mapper->Synchronize().ok());
  EXPECT_EQ(bytes, std::vector<std::byte>(bytes.size()));
  EXPECT_EQ(mapper->memory_info().guaranteed_bytes, 12 * kMebi);
  EXPECT_EQ(low.mapping_area().bytes, 0u);
  const Status rejected = low.CreateChunk(2 * kMebi).status();
  EXPECT_EQ(rejected.code(), StatusCode::kUnsupported);
  EXPECT_THAT(rejected.message(), ::testing::HasSubstr("memory_limit"));
  EXPECT_TRUE(numbers.AreRight());
  EXPECT_TRUE(others.AreRight());
}

class MemoryInADirectory : public MemoryBeyondTheDevice {
 protected:
  MemoryInADirectory() : MemoryBeyondTheDevice("256MiB," + Made()) {}
  ~MemoryInADirectory() override { std::filesystem::remove_all(Path()); }
  static std::string Path() { return "/tmp/gpushared-store-" + std::to_string(getpid()); }
  static std::string Made() {
    std::filesystem::create_directories(Path());
    return Path();
  }
};

// A worker whose swap store meets I/O errors.
class StoreThatFails : public MemoryInADirectory {
 protected:
  pid_t worker() const { return server().workers().at(0); }
  // Makes writes beyond this offset of any file fail.
  void LimitFiles(std::uint64_t bytes) const {
    const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    ASSERT_EQ(prlimit(worker(), RLIMIT_FSIZE, &limit, nullptr), 0);
  }
  // Truncates the swap store, so that its pages cannot be read, as after a disk failure.
  void EmptyStore() const {
    const std::string descriptors = "/proc/" + std::to_string(worker()) + "/fd";
    for (const auto& entry : std::filesystem::directory_iterator(descriptors)) {
      std::error_code ignored;
      const auto target = std::filesystem::read_symlink(entry.path(), ignored).string();
      if (target.find(Path()) == std::string::npos) continue;
      ASSERT_EQ(truncate(entry.path().c_str(), 0), 0);
      return;
    }
    FAIL() << "the worker has no store";
  }
};

TEST_F(StoreThatFails, WriteErrorRejectsAllocationAndLosesNoPage) {
  const Client first = Connect("first"), second = Connect("second");
  Numbers numbers(first, kMostOfAThird);
  // Lets the store's file grow before writes to it are limited, so that the next swap uses released
  // blocks and fails only when it writes.
  ASSERT_TRUE(second.AllocateDevice(kMostOfAThird).ok());
  ASSERT_TRUE(second.TrimDevice().ok());
  ASSERT_TRUE(Eventually([&] { return InStore("reserved_bytes") <= kMostOfAThird + 4 * kMebi; }));
  ASSERT_TRUE(numbers.Step(0).ok());  // All of the client's memory is resident again.
  const std::uint64_t moved = Figure("first", "swapped_out_bytes");
  LimitFiles(kMebi);
  const Status rejected = second.AllocateDevice(kMostOfAThird).status();
  EXPECT_EQ(rejected.code(), StatusCode::kOutOfMemory) << rejected.ToString();
  EXPECT_EQ(Figure("first", "swapped_out_bytes"), moved);
  EXPECT_THAT(server().Log(), ::testing::HasSubstr("File too large"));
  EXPECT_TRUE(numbers.Step(1).ok());
  EXPECT_TRUE(numbers.AreRight());
  // To honour the high client's guarantee, the server ends a session that exceeds its own.
  const Client high = Connect("high", SchedulingClass::kHigh);
  const Result<DeviceBuffer> third = second.AllocateDevice(28 * kMebi);
  EXPECT_TRUE(third.ok()) << third.status().ToString();
  const Result<DeviceBuffer> mine = high.AllocateDevice(10 * kMebi);
  EXPECT_TRUE(mine.ok()) << mine.status().ToString();
  EXPECT_TRUE(Eventually([&] { return Row("first").empty() || Row("second").empty(); }));
  EXPECT_FALSE(Row("first").empty() && Row("second").empty());
  EXPECT_THAT(server().Log(), ::testing::HasSubstr("device memory cannot be swapped out"));
  LimitFiles(RLIM_INFINITY);
  EXPECT_TRUE(Eventually([&] { return InStore("used_bytes") == 0; }));
}

TEST_F(StoreThatFails, UnreadablePageEndsOnlyItsClient) {
  const Client first = Connect("first"), second = Connect("second");
  Numbers numbers(first, kMostOfAThird), others(second, 26 * kMebi);
  {
    const Client high = Connect("high", SchedulingClass::kHigh);
    ASSERT_TRUE(high.AllocateDevice(12 * kMebi).ok());
    ASSERT_GT(InStore("used_bytes"), 0u);
    EmptyStore();
  }
  ASSERT_TRUE(Eventually([&] { return Row("high").empty(); }));
  // Now all memory fits, and nothing has to be swapped out.
  const Status of_first = numbers.Step(0), of_second = others.Step(0);
  EXPECT_NE(of_first.ok(), of_second.ok());
  const Status& ended = of_first.ok() ? of_second : of_first;
  EXPECT_THAT(ended.message(),
              ::testing::HasSubstr("cannot be read back from a file in '" + Path() + "'"));
  EXPECT_TRUE(of_first.ok() ? numbers.AreRight() : others.AreRight());
  EXPECT_TRUE(Eventually([&] { return InStore("used_bytes") == 0; }));
}

TEST_F(MemoryInADirectory, DeadWorkerLeavesNoFileAndItsClientsLoseDevice) {
  const Client first = Connect("first"), second = Connect("second");
  Numbers numbers(first, kMostOfAThird), others(second, kMostOfAThird);
  ASSERT_TRUE(Eventually([&] { return InStore("used_bytes") > 0; }));
  EXPECT_TRUE(std::filesystem::is_empty(Path())) << "others could open it";
  ASSERT_EQ(kill(server().workers().at(0), SIGKILL), 0);
  EXPECT_TRUE(Eventually([&] { return numbers.Step(0).code() == StatusCode::kDeviceLost; }));
  EXPECT_TRUE(Eventually([&] { return others.Step(0).code() == StatusCode::kDeviceLost; }));
  EXPECT_TRUE(std::filesystem::is_empty(Path()));
  // The next worker begins with an empty store.
  const Client next = Connect("next");
  EXPECT_EQ(InStore("reserved_bytes"), 0u);
  EXPECT_TRUE(next.AllocateDevice(kMostOfAThird).ok());
}

class MemoryBeyondASmallStore : public MemoryBeyondTheDevice {
 protected:
  MemoryBeyondASmallStore() : MemoryBeyondTheDevice("40MiB," + ScratchPath()) {}
  static std::string ScratchPath() { return "/tmp"; }
};

TEST_F(MemoryBeyondASmallStore, FullStoreRejectsAllocationAndLosesNothing) {
  const Client first = Connect("first"), second = Connect("second");
  Numbers numbers(first, kMostOfAThird);
  const Status rejected = second.AllocateDevice(kMostOfAThird).status();
  EXPECT_EQ(rejected.code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(rejected.message(), ::testing::HasSubstr("of 40 MiB are left"));
  // The guarantee does not need the store.
  EXPECT_TRUE(second.AllocateDevice(12 * kMebi).ok());
  EXPECT_TRUE(numbers.AreRight());
}

}  // namespace
}  // namespace gpushared::testing
