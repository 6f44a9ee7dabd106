// SPDX-License-Identifier: Apache-2.0
// Clients that hold more memory than their device has, in a real server.
// GPUSHARED_MEMORY_TURNS=N lets the three of them take N turns.
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
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/gpu_server.h"
#include "tests/support/raw_client.h"
#include "tests/support/read_file.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

constexpr std::size_t kMebi = std::size_t{1} << 20;
// Of a device of 64 MiB; three of them need 102.
constexpr std::size_t kMostOfAThird = 34 * kMebi;

// A server whose clients have a fifth of the device for certain, and three fifths at most.
class MemoryBeyondTheDevice : public ::testing::Test {
 protected:
  explicit MemoryBeyondTheDevice(const std::string& overcommit = "256MiB", bool is_gpu = false,
                                 const std::string& limit = "60%") {
    std::ofstream(file_) << "[[access]]\n"
                            "everyone = true\n"
                            "highest_class = \"high\"\n"
                            "max_weight = 1000\n"
                            "client_memory = \"20%\"\n"
                            "memory_limit = \""
                         << limit << "\"\n";
    std::vector<std::string> arguments = {"--config", file_,      "--overcommit",
                                          overcommit, "--policy", "priority"};
    if (is_gpu) {
      gpu_.emplace(GpuServerOptions{.statements = "memory 76M; costs on", .arguments = arguments});
    } else {
      arguments.insert(arguments.end(), {"--memory", "64MiB"});
      cpu_.emplace(arguments);
    }
  }

  Client Connect(const std::string& name,
                 SchedulingClass scheduling_class = SchedulingClass::kLow) {
    ClientOptions options;
    options.socket = server().socket();
    options.name = name;
    options.scheduling_class = scheduling_class;
    Result<Client> client = Client::Connect(options);
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    return *std::move(client);
  }
  nlohmann::json Row(const std::string& name) const {
    const auto report = nlohmann::json::parse(server().Ctl({"ps", "--json"}).output);
    for (const auto& row : report["clients"]) {
      if (row["name"] == name) return row;
    }
    return nlohmann::json::object();
  }
  std::uint64_t Figure(const std::string& name, const char* figure) const {
    const auto row = Row(name);
    return row.contains(figure) ? row[figure].get<std::uint64_t>() : 0;
  }
  std::uint64_t InStore(const char* figure) const {
    const auto report = nlohmann::json::parse(server().Ctl({"status", "--json"}).output);
    return report["devices"][0]["overcommit"][figure].get<std::uint64_t>();
  }
  const std::string& folder() const { return folder_.path(); }
  ServerProcess& server() { return gpu_ ? gpu_->server() : *cpu_; }
  const ServerProcess& server() const { return gpu_ ? gpu_->server() : *cpu_; }
  void ThreeTakeTurns();

  const ScratchFolder folder_;
  const std::string file_ = folder_ / "server.toml";
  std::optional<ServerProcess> cpu_;
  mutable std::optional<GpuServer> gpu_;
};

// A buffer of numbers on the device, and what they must be.
class Numbers {
 public:
  Numbers(const Client& client, std::size_t bytes) : client_(client), expected_(bytes / 4) {
    const Result<Module> module = client.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
    EXPECT_TRUE(module.ok()) << module.status().ToString();
    step_.emplace(*module->GetKernel("step"));
    Result<DeviceBuffer> buffer = client.AllocateDevice(bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status().ToString();
    buffer_.emplace(*std::move(buffer));
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      expected_[i] = static_cast<std::uint32_t>(i * 2654435761u);
    }
    EXPECT_TRUE(Copy(/*to_device=*/true).ok());
  }

  // One kernel over a part of them, another one in each round.
  Status Step(std::size_t round) {
    constexpr std::size_t kCount = 4096;
    const std::size_t first = round * 37 * kCount % (expected_.size() - kCount);
    for (std::size_t i = first; i < first + kCount; ++i) expected_[i] = expected_[i] * 3 + 1;
    const Stream stream = client_.default_stream();
    const Status launched =
        stream.Launch(*step_, {.grid = {kCount / 256, 1, 1}, .block = {256, 1, 1}},
                      buffer_->address() + first * 4, static_cast<int>(kCount));
    return launched.ok() ? stream.Synchronize() : launched;
  }
  bool AreRight() {
    const std::vector<std::uint32_t> expected = expected_;
    const Status copied = Copy(/*to_device=*/false);
    EXPECT_TRUE(copied.ok()) << copied.ToString();
    return copied.ok() && std::exchange(expected_, expected) == expected;
  }

 private:
  Status Copy(bool to_device) {
    const Stream stream = client_.default_stream();
    const std::size_t bytes = expected_.size() * 4;
    const Status copied = to_device
                              ? stream.CopyToDevice(buffer_->address(), expected_.data(), bytes)
                              : stream.CopyToHost(expected_.data(), buffer_->address(), bytes);
    return copied.ok() ? stream.Synchronize() : copied;
  }

  const Client& client_;
  std::vector<std::uint32_t> expected_;
  std::optional<Kernel> step_;
  std::optional<DeviceBuffer> buffer_;
};

void MemoryBeyondTheDevice::ThreeTakeTurns() {
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
        for (const std::string& name : names) taken += Figure(name, "times_moved_out");
        return taken >= turns;
      },
      std::chrono::seconds(60) + std::chrono::seconds(1) * turns));
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 3);
  EXPECT_TRUE(Eventually([&] { return InStore("reserved_bytes") == 0; }));
  EXPECT_EQ(InStore("used_bytes"), 0u);
}

TEST_F(MemoryBeyondTheDevice, ThreeClientsOfMoreThanAThirdTakeTurnsAndComputeRight) {
  ThreeTakeTurns();
}

TEST_F(MemoryBeyondTheDevice, ACopyOfAClientThatWasMovedOutNeedsItsStepsAlone) {
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
  ASSERT_GE(Figure("first", "moved_out_bytes"), 4 * kMebi);
  // A part of each step; the first one that was not there comes in alone.
  bool has_come_in = false;
  for (std::size_t at = kMostOfAThird; at >= 2 * kMebi; at -= 2 * kMebi) {
    std::vector<std::byte> read(kPart);
    const std::size_t begin = at - kPart;
    ASSERT_TRUE(stream.CopyToHost(read.data(), buffer.address() + begin, kPart).ok());
    ASSERT_TRUE(stream.Synchronize().ok());
    EXPECT_TRUE(std::ranges::equal(read, std::span(written).subspan(begin, kPart))) << begin;
    if (has_come_in || Figure("first", "moved_in_bytes") == 0) continue;
    has_come_in = true;
    EXPECT_EQ(Figure("first", "moved_in_bytes"), 2 * kMebi);
    EXPECT_LT(Figure("first", "resident_bytes"), Figure("first", "memory_bytes"));
  }
  EXPECT_TRUE(has_come_in);
  EXPECT_TRUE(others.AreRight());
}

class MemoryBeyondTheGpu : public MemoryBeyondTheDevice {
 protected:
  MemoryBeyondTheGpu() : MemoryBeyondTheDevice("256MiB", /*is_gpu=*/true) {}
};

TEST_F(MemoryBeyondTheGpu, ThreeClientsOfMoreThanAThirdTakeTurnsAndComputeRight) {
  ThreeTakeTurns();
}

TEST_F(MemoryBeyondTheDevice, AHighClientHasItsGuaranteeAndItsMemoryIsEmpty) {
  const Client low = Connect("low"), other = Connect("other");
  Numbers numbers(low, kMostOfAThird), others(other, 26 * kMebi);
  // All of the device is in use, and full of numbers.
  const Client high = Connect("high", SchedulingClass::kHigh);
  const Result<DeviceBuffer> mine = high.AllocateDevice(12 * kMebi);
  ASSERT_TRUE(mine.ok()) << mine.status().ToString();
  std::vector<std::byte> bytes(12 * kMebi, std::byte{1});
  ASSERT_TRUE(high.default_stream().CopyToHost(bytes.data(), mine->address(), bytes.size()).ok());
  ASSERT_TRUE(high.Synchronize().ok());
  EXPECT_EQ(bytes, std::vector<std::byte>(bytes.size())) << "bytes of another client";
  EXPECT_EQ(Figure("high", "resident_bytes"), Figure("high", "memory_bytes"));
  EXPECT_GE(Figure("low", "moved_out_bytes") + Figure("other", "moved_out_bytes"), 4 * kMebi);
  EXPECT_EQ(Figure("high", "guaranteed_bytes"), 64 * kMebi / 5);
  EXPECT_TRUE(numbers.AreRight());
  EXPECT_TRUE(others.AreRight());
}

// Prints what it cost them; nothing but results is asserted.
TEST_F(MemoryBeyondTheDevice, HighClientsComeAndGoBesideTwoThatThrash) {
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
  EXPECT_TRUE(Eventually([&] { return Figure("one", "times_moved_out") > 0; }));
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

TEST_F(MemoryBeyondTheDevice, AKilledClientLeavesNothingInBothPlaces) {
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
  EXPECT_TRUE(numbers.Step(0).ok());  // Some of the doomed one's is out.
  EXPECT_TRUE(Eventually([&] { return Figure("doomed", "moved_out_bytes") > 0; }));
  EXPECT_GE(InStore("reserved_bytes"), 2 * kMostOfAThird);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(Eventually([&] { return InStore("reserved_bytes") <= kMostOfAThird + 4 * kMebi; }));
  EXPECT_EQ(InStore("used_bytes"), 0u);
  const Client next = Connect("next");
  EXPECT_TRUE(next.AllocateDevice(kMostOfAThird - 8 * kMebi).ok());
  EXPECT_TRUE(numbers.AreRight());
}

TEST_F(MemoryBeyondTheDevice, AClientSeesItsGuaranteeAndIsToldWhenOthersWait) {
  std::optional<DeviceBuffer> cache;
  std::atomic<std::uint64_t> told = 0;
  ClientOptions options;
  options.socket = server().socket();
  options.name = "keeper";
  options.scheduling_class = SchedulingClass::kLow;
  options.on_memory_wanted = [&](std::uint64_t bytes) {
    told = bytes;
    cache.reset();
  };
  const Result<Client> keeper = Client::Connect(options);
  ASSERT_TRUE(keeper.ok()) << keeper.status().ToString();
  Numbers numbers(*keeper, 14 * kMebi);
  cache.emplace(keeper->AllocateDevice(20 * kMebi).value());
  ASSERT_TRUE(Eventually([&] { return keeper->memory_info().resident_bytes >= 34 * kMebi; }));
  const MemoryInfo before = keeper->memory_info();
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
  EXPECT_LE(keeper->memory_info().mapped_bytes, before.mapped_bytes - 16 * kMebi) << "not trimmed";
  is_over = true;
  other.join();
  EXPECT_TRUE(numbers.AreRight());
}

TEST_F(MemoryBeyondTheDevice, ChunksAreForThoseWhoseMemoryNeverMoves) {
  const Client low = Connect("low"), other = Connect("other");
  Numbers numbers(low, kMostOfAThird), others(other, 26 * kMebi);
  // The device is full.
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
  const Status refused = low.CreateChunk(2 * kMebi).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("memory_limit"));
  EXPECT_TRUE(numbers.AreRight());
  EXPECT_TRUE(others.AreRight());
}

// Clients may hold three times the device.
class MemoryOfThreeDevices : public MemoryBeyondTheDevice {
 protected:
  static constexpr std::size_t kPart = 58 * kMebi;  // One of them and a module fill the device.
  MemoryOfThreeDevices() : MemoryBeyondTheDevice("448MiB", false, "192MiB") {}

  struct Worked {
    std::uint64_t moved_in_bytes = 0;
    std::uint64_t rounds = 0;
  };
  // Works on each part in turn.
  Worked Work(std::vector<std::unique_ptr<Numbers>>& parts, const std::string& name,
              std::size_t rounds) const {
    Worked worked;
    for (std::size_t round = 0; round < rounds; ++round) {
      const std::uint64_t before = Figure(name, "moved_in_bytes");
      const Status step = parts[round % parts.size()]->Step(round);
      EXPECT_TRUE(step.ok()) << step.ToString();
      const std::uint64_t moved = Figure(name, "moved_in_bytes") - before;
      EXPECT_LE(moved, kPart) << "more came in than the launch touches";
      worked.moved_in_bytes += moved;
      ++worked.rounds;
    }
    return worked;
  }
  static std::vector<std::unique_ptr<Numbers>> Parts(const Client& client) {
    std::vector<std::unique_ptr<Numbers>> parts;
    for (int i = 0; i < 3; ++i) parts.push_back(std::make_unique<Numbers>(client, kPart));
    return parts;
  }
};

TEST_F(MemoryOfThreeDevices, AClientRunsWithTheThirdThatItsLaunchTouches) {
  const Client client = Connect("large");
  auto parts = Parts(client);
  const Worked worked = Work(parts, "large", 9);
  EXPECT_GT(worked.moved_in_bytes, 4 * kPart) << "nothing was moved";
  EXPECT_GE(Figure("large", "memory_bytes"), 3 * kPart);
  EXPECT_LE(Figure("large", "resident_bytes"), 64 * kMebi);
  // The part that it works on stays.
  const std::uint64_t before = Figure("large", "moved_in_bytes");
  for (std::size_t round = 0; round < 20; ++round) {
    const Status step = parts[0]->Step(round);
    ASSERT_TRUE(step.ok()) << step.ToString();
  }
  EXPECT_LE(Figure("large", "moved_in_bytes") - before, kPart);
  for (const auto& part : parts) EXPECT_TRUE(part->AreRight());
}

TEST_F(MemoryOfThreeDevices, AnotherOneIsKilledInBetween) {
  const Client client = Connect("large");
  auto parts = Parts(client);
  const std::uint64_t reserved = InStore("reserved_bytes");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ClientOptions options;
    options.socket = server().socket();
    options.name = "doomed";
    options.scheduling_class = SchedulingClass::kLow;
    const Result<Client> doomed = Client::Connect(options);
    if (!doomed.ok()) _exit(1);
    auto own = Parts(*doomed);
    for (std::size_t round = 0;; ++round) (void)own[round % 3]->Step(round);
  }
  EXPECT_TRUE(Eventually([&] { return Figure("doomed", "moved_in_bytes") > kPart; }));
  Work(parts, "large", 3);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  waitpid(child, nullptr, 0);
  Work(parts, "large", 3);
  EXPECT_TRUE(Eventually([&] { return InStore("reserved_bytes") <= reserved; }));
  for (const auto& part : parts) EXPECT_TRUE(part->AreRight());
}

TEST_F(MemoryOfThreeDevices, WhatTouchesMoreThanTheDeviceIsRefusedWithBothSizes) {
  const Client client = Connect("large");
  const Result<DeviceBuffer> buffer = client.AllocateDevice(120 * kMebi);
  ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
  const Result<Stream> stream = client.CreateStream();
  ASSERT_TRUE(stream.ok());
  ASSERT_TRUE(stream->Fill(buffer->address(), FillElement::U8(1), 120 * kMebi).ok());
  const Status refused = stream->Synchronize();
  EXPECT_EQ(refused.code(), StatusCode::kOutOfMemory) << refused.ToString();
  EXPECT_THAT(refused.message(),
              ::testing::HasSubstr("fill refused: it may touch 125829120 bytes"));
  // A part of it is no trouble.
  const Stream other = client.default_stream();
  ASSERT_TRUE(other.Fill(buffer->address() + 70 * kMebi, FillElement::U8(1), 20 * kMebi).ok());
  EXPECT_TRUE(other.Synchronize().ok());
}

// The launch may touch what its client said, and never what is not there.
TEST_F(MemoryOfThreeDevices, ALieAboutABufferIsItsClientsFault) {
  const Client neighbour = Connect("neighbour");
  Numbers numbers(neighbour, 20 * kMebi);
  Result<RawClient> liar = RawClient::Connect(server().socket());
  ASSERT_TRUE(liar.ok());
  ipc::Hello hello;
  hello.name = "liar";
  ASSERT_TRUE(liar->Join(hello).ok());
  const auto module = liar->LoadModule(0, ReadFile(GPUSHARED_SYSTEM_KERNELS));
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  ASSERT_TRUE(liar->Resize(120 * kMebi).ok());
  const std::uint64_t base = liar->base();
  liar->NameBuffer(base, 2 * kMebi);
  liar->NameBuffer(base + 60 * kMebi, 2 * kMebi);
  const std::uint32_t kernel = KernelNumber(*module, "store_at");
  const auto store_at = [&](std::uint64_t offset) {
    std::vector<std::byte> parameters = ParametersAt(base + 60 * kMebi, 16);
    std::memcpy(parameters.data() + 8, &offset, sizeof offset);
    liar->Launch(0, 0, kernel, {}, parameters);
    EXPECT_TRUE(liar->AwaitFinished(0, liar->published(0), std::chrono::seconds(20)));
    return liar->Ask<ipc::ErrorText>(ipc::DescribeError{.stream = 0});
  };
  EXPECT_EQ(store_at(2 * kMebi - 4)->status.code(), StatusCode::kOk);
  // Behind what it said that it has.
  const auto error = store_at(2 * kMebi);
  ASSERT_TRUE(error.ok()) << error.status().ToString();
  EXPECT_EQ(error->status.code(), StatusCode::kKernelFault) << error->status.ToString();
  EXPECT_TRUE(numbers.Step(0).ok());
  EXPECT_TRUE(numbers.AreRight());
}

class MemoryInAFolder : public MemoryBeyondTheDevice {
 protected:
  MemoryInAFolder() : MemoryBeyondTheDevice("256MiB," + Made()) {}
  ~MemoryInAFolder() override { std::filesystem::remove_all(Path()); }
  static std::string Path() { return "/tmp/gpushared-store-" + std::to_string(getpid()); }
  static std::string Made() {
    std::filesystem::create_directories(Path());
    return Path();
  }
};

// The worker's store meets errors of the disk, or of the machine.
class StoreThatFails : public MemoryInAFolder {
 protected:
  pid_t worker() const { return server().workers().at(0); }
  // Writes behind so many bytes of any file fail.
  void LimitFiles(std::uint64_t bytes) const {
    const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    ASSERT_EQ(prlimit(worker(), RLIMIT_FSIZE, &limit, nullptr), 0);
  }
  // Its pages are gone, as those of a disk that cannot be read.
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

TEST_F(StoreThatFails, AWriteErrorRefusesAnAllocationAndLosesNoPage) {
  const Client first = Connect("first"), second = Connect("second");
  Numbers numbers(first, kMostOfAThird);
  // Growth of the file would be refused, and what comes now has blocks of what was given back.
  ASSERT_TRUE(second.AllocateDevice(kMostOfAThird).ok());
  ASSERT_TRUE(second.TrimDevice().ok());
  ASSERT_TRUE(Eventually([&] { return InStore("reserved_bytes") <= kMostOfAThird + 4 * kMebi; }));
  ASSERT_TRUE(numbers.Step(0).ok());  // All of it is there again.
  const std::uint64_t moved = Figure("first", "moved_out_bytes");
  LimitFiles(kMebi);
  const Status refused = second.AllocateDevice(kMostOfAThird).status();
  EXPECT_EQ(refused.code(), StatusCode::kOutOfMemory) << refused.ToString();
  EXPECT_EQ(Figure("first", "moved_out_bytes"), moved);
  EXPECT_THAT(server().Log(), ::testing::HasSubstr("File too large"));
  EXPECT_TRUE(numbers.Step(1).ok());
  EXPECT_TRUE(numbers.AreRight());
  // A guarantee is worth a session that is beyond its own.
  const Client high = Connect("high", SchedulingClass::kHigh);
  const Result<DeviceBuffer> third = second.AllocateDevice(28 * kMebi);
  EXPECT_TRUE(third.ok()) << third.status().ToString();
  const Result<DeviceBuffer> mine = high.AllocateDevice(10 * kMebi);
  EXPECT_TRUE(mine.ok()) << mine.status().ToString();
  EXPECT_TRUE(Eventually([&] { return Row("first").empty() || Row("second").empty(); }));
  EXPECT_FALSE(Row("first").empty() && Row("second").empty());
  EXPECT_THAT(server().Log(), ::testing::HasSubstr("device memory cannot be moved out"));
  LimitFiles(RLIM_INFINITY);
  EXPECT_TRUE(Eventually([&] { return InStore("used_bytes") == 0; }));
}

TEST_F(StoreThatFails, APageThatCannotBeReadEndsItsClientAndNobodyElse) {
  const Client first = Connect("first"), second = Connect("second");
  Numbers numbers(first, kMostOfAThird), others(second, 26 * kMebi);
  {
    const Client high = Connect("high", SchedulingClass::kHigh);
    ASSERT_TRUE(high.AllocateDevice(12 * kMebi).ok());
    ASSERT_GT(InStore("used_bytes"), 0u);
    EmptyStore();
  }
  ASSERT_TRUE(Eventually([&] { return Row("high").empty(); }));
  // Now there is room for all, and nothing has to go out.
  const Status of_first = numbers.Step(0), of_second = others.Step(0);
  EXPECT_NE(of_first.ok(), of_second.ok());
  const Status& ended = of_first.ok() ? of_second : of_first;
  EXPECT_THAT(ended.message(),
              ::testing::HasSubstr("cannot be read back from a file in '" + Path() + "'"));
  EXPECT_TRUE(of_first.ok() ? numbers.AreRight() : others.AreRight());
  EXPECT_TRUE(Eventually([&] { return InStore("used_bytes") == 0; }));
}

TEST_F(MemoryInAFolder, ADeadWorkerLeavesNoFileAndItsClientsLoseTheDevice) {
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

TEST_F(MemoryBeyondASmallStore, AFullStoreRefusesAnAllocationAndLosesNothing) {
  const Client first = Connect("first"), second = Connect("second");
  Numbers numbers(first, kMostOfAThird);
  const Status refused = second.AllocateDevice(kMostOfAThird).status();
  EXPECT_EQ(refused.code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("of 40 MiB are left"));
  // Its guarantee needs no store.
  EXPECT_TRUE(second.AllocateDevice(12 * kMebi).ok());
  EXPECT_TRUE(numbers.AreRight());
}

}  // namespace
}  // namespace gpushared::testing
