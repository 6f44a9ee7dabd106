// SPDX-License-Identifier: Apache-2.0
// Rules for streams, stops, kills and completions.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/conformance/device_suite.h"

namespace gpushared::testing {
namespace {

// Locations that kernels of these tests write, in bytes from the base.
constexpr std::uint64_t kOut = 0;
constexpr std::uint64_t kRuns = 4 * kMebibyte;
constexpr std::uint64_t kGate = 7 * kMebibyte;  // Remains zero.
// Distance between the locations of streams that must not share them. The first half of each area
// is `out`, and the second half is `runs`.
constexpr std::uint64_t kBytesPerStream = std::uint64_t{16} << 10;

void Spin(std::uint64_t turns) {
  for (; turns > 0; --turns) asm volatile("" ::: "memory");
}

std::vector<std::byte> MixArguments(const TestClient& client, std::uint32_t rounds) {
  return Arguments::Pack(client.At(kOut), client.At(kRuns), rounds);
}

TEST_P(DeviceConformance, EveryBlockRunsExactlyOnce) {
  const TestClient client = NewClientWithKernels();
  AwaitOk(Launch(client, "mix", {.grid = {777, 1, 1}}, MixArguments(client, 3)));
  EXPECT_EQ(ReadWords(client, kRuns, 778), [] {
    std::vector<std::uint32_t> runs(778, 1);
    runs.back() = 0;
    return runs;
  }());
  const std::vector<std::uint32_t> out = ReadWords(client, kOut, 777 * 64);
  for (std::uint32_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], Mixed(i + 1, 3)) << i;
}

TEST_P(DeviceConformance, BlocksAndThreadsOfThreeDimensionsAreAllReached) {
  const TestClient client = NewClientWithKernels();
  AwaitOk(Launch(client, "coordinates", {.grid = {3, 5, 2}, .block = {5, 3, 7}},
                 Arguments::Pack(client.At(kOut))));
  const std::vector<std::uint32_t> out = ReadWords(client, kOut, 30 * 105);
  for (std::uint32_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], i / 105 * 1000 + i % 105) << i;
}

TEST_P(DeviceConformance, WorkOfAStreamRunsInSubmissionOrder) {
  const TestClient client = NewClientWithKernels();
  constexpr std::uint32_t kCommands = 60;
  std::vector<device::WorkId> ids;
  for (std::uint32_t tag = 0; tag < kCommands; ++tag) {
    // Several blocks, so that overlapping commands would interleave.
    ids.push_back(Launch(client, "append", {.grid = {5, 1, 1}, .block = {1, 1, 1}},
                         Arguments::Pack(client.At(kRuns), client.At(kOut), tag)));
  }
  for (const device::WorkId id : ids) AwaitOk(id);
  const std::vector<std::uint32_t> list = ReadWords(client, kOut, std::size_t{5} * kCommands);
  for (std::uint32_t i = 0; i < list.size(); ++i) ASSERT_EQ(list[i], i / 5) << i;
  EXPECT_TRUE(std::ranges::equal(std::span(order()).first(kCommands), ids));
}

TEST_P(DeviceConformance, CopiesAndLaunchesOfAStreamReadEachOthersWrites) {
  const TestClient client = NewClientWithKernels();
  std::vector<std::uint32_t> host(64 * 1024);
  std::iota(host.begin(), host.end(), 0U);
  const std::vector<std::uint32_t> before = host;
  device::CopyWork copy;
  copy.space = client.space.get();
  copy.stream = 1;
  copy.direction = device::CopyWork::Direction::kHostToDevice;
  copy.host = reinterpret_cast<std::byte*>(host.data());
  copy.destination = client.At(kOut);
  copy.width_bytes = host.size() * 4;
  Submit(copy);
  Launch(client, "reverse", {.grid = {1024, 1, 1}}, Arguments::Pack(client.At(kOut)));
  copy.direction = device::CopyWork::Direction::kDeviceToHost;
  copy.source = client.At(kOut);
  AwaitOk(Submit(copy));
  for (std::uint32_t i = 0; i < host.size(); ++i) {
    ASSERT_EQ(host[i], before[i / 64 * 64 + 63 - i % 64]) << i;
  }
}

TEST_P(DeviceConformance, AllStreamsOfAllClientsProgress) {
  const TestClient a = NewClientWithKernels();
  const TestClient b = NewClientWithKernels();
  std::vector<device::WorkId> ids;
  for (std::uint32_t i = 0; i < 40; ++i) {
    for (const TestClient* client : {&a, &b}) {
      const device::StreamKey stream = (client == &a ? 10U : 20U) + i % 4;
      ids.push_back(Launch(*client, "append",
                           {.grid = {2, 1, 1}, .block = {1, 1, 1}, .stream = stream},
                           Arguments::Pack(client->At(kRuns), client->At(kOut), i)));
    }
  }
  for (const device::WorkId id : ids) AwaitOk(id);
  EXPECT_EQ(ReadWords(a, kRuns, 1)[0], 80U);
  EXPECT_EQ(ReadWords(b, kRuns, 1)[0], 80U);
}

// Because blocks run as a prefix, a stopped launch can resume: no block runs twice, and none is
// left out.
TEST_P(DeviceConformance, StoppedLaunchHasRunExactlyAPrefixAndResumesToTheSameResult) {
  if (SkipsUnlessLaunchesStop()) return;
  const TestClient client = NewClientWithKernels();
  std::mt19937 random(2024);
  constexpr std::uint32_t kBlocks = 1000;
  constexpr std::uint32_t kRounds = 40;
  std::vector<std::uint32_t> mixed(kBlocks * 64);
  for (std::uint32_t i = 0; i < mixed.size(); ++i) mixed[i] = Mixed(i + 1, kRounds);
  int partial = 0;
  // Whether a stop hits a running launch is a matter of chance, so a busy machine needs more tries.
  for (std::uint32_t round = 1; round <= 8 || (partial == 0 && round <= 500); ++round) {
    LaunchSpec spec{.grid = {kBlocks, 1, 1}};
    bool is_stopped = true;
    // The limit of the random delay before the stop doubles each time, so that the launch completes
    // eventually.
    for (std::uint64_t turns = 100000; is_stopped; turns *= 2) {
      const device::WorkId id = Launch(client, "mix", spec, MixArguments(client, kRounds));
      Spin(random() % turns);
      gpu().RequestStop(id);
      const device::Completion completion = Await(id);
      is_stopped = completion.stopped;
      ASSERT_TRUE(completion.status.ok()) << completion.status.ToString();
      ASSERT_GE(completion.units_done, spec.first_unit);
      ASSERT_EQ(completion.stopped, completion.units_done < kBlocks);
      const std::vector<std::uint32_t> runs = ReadWords(client, kRuns, kBlocks);
      for (std::uint32_t i = 0; i < kBlocks; ++i) {
        ASSERT_EQ(runs[i], i < completion.units_done ? round : round - 1)
            << "block " << i << " of " << completion.units_done;
      }
      if (is_stopped && completion.units_done > spec.first_unit) ++partial;
      spec.first_unit = completion.units_done;
    }
    const std::vector<std::uint32_t> out = ReadWords(client, kOut, mixed.size());
    for (std::uint32_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], mixed[i]) << "thread " << i;
  }
  EXPECT_GT(partial, 0) << "no stop came while the launch ran: this test saw nothing";
}

TEST_P(DeviceConformance, WorkStoppedBeforeItStartsRunsNothing) {
  if (SkipsUnlessItKills()) return;
  const TestClient client = NewClientWithKernels();
  const device::WorkId plug = Plug(client, kGate);
  const device::WorkId waiting =
      Launch(client, "mix", {.grid = {10, 1, 1}}, MixArguments(client, 1));
  const device::WorkId behind =
      Launch(client, "mix", {.grid = {10, 1, 1}}, MixArguments(client, 1));
  gpu().RequestStop(behind);
  gpu().RequestStop(waiting);
  gpu().RequestKill(plug);
  for (const device::WorkId id : {waiting, behind}) {
    const device::Completion completion = Await(id);
    EXPECT_TRUE(completion.status.ok());
    EXPECT_TRUE(completion.stopped);
    EXPECT_EQ(completion.units_done, 0U);
  }
  EXPECT_EQ(ReadWords(client, kRuns, 10), std::vector<std::uint32_t>(10, 0));
  Await(plug);
}

TEST_P(DeviceConformance, StreamContinuesAfterStoppedWork) {
  if (SkipsUnlessItKills()) return;
  const TestClient client = NewClientWithKernels();
  const device::WorkId plug = Plug(client, kGate);
  const device::WorkId stopped =
      Launch(client, "mix", {.grid = {10, 1, 1}}, MixArguments(client, 1));
  const device::WorkId next = Launch(client, "mix", {.grid = {10, 1, 1}}, MixArguments(client, 1));
  gpu().RequestStop(stopped);
  gpu().RequestKill(plug);
  EXPECT_TRUE(Await(stopped).stopped);
  AwaitOk(next);
  EXPECT_EQ(ReadWords(client, kRuns, 10), std::vector<std::uint32_t>(10, 1));
  Await(plug);
}

TEST_P(DeviceConformance, WorkThatResumesAtItsEndCompletesWithoutRunning) {
  const TestClient client = NewClientWithKernels();
  const device::Completion completion =
      Await(Launch(client, "mix", {.grid = {10, 1, 1}, .first_unit = 10}, MixArguments(client, 1)));
  EXPECT_TRUE(completion.status.ok());
  EXPECT_FALSE(completion.stopped);
  EXPECT_EQ(completion.units_done, 10U);
  EXPECT_EQ(ReadWords(client, kRuns, 10), std::vector<std::uint32_t>(10, 0));
}

TEST_P(DeviceConformance, WorkCompletesExactlyOnceWhateverIsRequested) {
  const TestClient client = NewClientWithKernels();
  std::mt19937 random(99);
  std::vector<device::WorkId> ids;
  for (int i = 0; i < 300; ++i) {
    const device::StreamKey stream = random() % 7;
    // Streams run concurrently, so each has separate words.
    const std::uint64_t words = client.At(kOut + stream * kBytesPerStream);
    ids.push_back(Launch(client, "mix",
                         {.grid = {static_cast<std::uint32_t>(1 + random() % 20), 1, 1},
                          .stream = stream,
                          .priority = static_cast<std::uint8_t>(random() % 3)},
                         Arguments::Pack(words, words + kBytesPerStream / 2, 1U)));
    // The ids include those of completed work, and requests are repeated.
    if (random() % 2 == 0) gpu().RequestStop(ids[random() % ids.size()]);
    if (random() % 8 == 0) gpu().RequestKill(ids[random() % ids.size()]);
  }
  const bool contains = GetParam().isolation == device::Isolation::kContain;
  for (const device::WorkId id : ids) {
    const Status status = Await(id).status;
    if (status.ok() || status.code() == StatusCode::kCancelled) continue;
    // A launch of the same module that ran at the same time was killed.
    EXPECT_TRUE(contains && status.code() == StatusCode::kKernelFault &&
                status.message().find("stopped by the server") != std::string::npos)
        << status.ToString();
  }
  // Await has counted each completion; a second one would have failed the test.
  AwaitOk(Launch(client, "mix", {}, MixArguments(client, 1)));
}

TEST_P(DeviceConformance, RequestsForUnknownWorkAreIgnored) {
  const TestClient client = NewClientWithKernels();
  gpu().RequestStop(123456789);
  gpu().RequestKill(123456789);
  const device::WorkId done = Launch(client, "mix", {}, MixArguments(client, 1));
  AwaitOk(done);
  gpu().RequestStop(done);
  gpu().RequestKill(done);
  AwaitOk(Launch(client, "mix", {}, MixArguments(client, 1)));
}

TEST_P(DeviceConformance, HigherPriorityRunsFirst) {
  if (SkipsUnlessItKills()) return;
  const TestClient client = NewClientWithKernels();
  const device::WorkId plug = Plug(client, kGate);
  const device::WorkId low = Launch(
      client, "mix", {.grid = {3000, 1, 1}, .stream = 1, .priority = 1}, MixArguments(client, 20));
  const device::WorkId high =
      Launch(client, "append", {.grid = {1, 1, 1}, .stream = 2, .priority = 2},
             Arguments::Pack(client.At(kGate + 64), client.At(kGate + 128), 1U));
  gpu().RequestKill(plug);
  EXPECT_TRUE(IsServedFirst(high, low));
  Await(plug);
}

TEST_P(DeviceConformance, OlderWorkIsServedFirstInsideAPriority) {
  if (SkipsUnlessItKills()) return;
  const TestClient client = NewClientWithKernels();
  const device::WorkId plug = Plug(client, kGate);
  const device::WorkId older =
      Launch(client, "append", {.grid = {1, 1, 1}, .stream = 9},
             Arguments::Pack(client.At(kGate + 64), client.At(kGate + 128), 1U));
  const device::WorkId younger =
      Launch(client, "mix", {.grid = {3000, 1, 1}, .stream = 1}, MixArguments(client, 20));
  gpu().RequestKill(plug);
  EXPECT_TRUE(IsServedFirst(older, younger));
  Await(plug);
}

TEST_P(DeviceConformance, KillEndsAnEndlessKernel) {
  if (SkipsUnlessItEndsKernels()) return;
  const TestClient client = NewClientWithKernels();
  for (int round = 0; round < 5; ++round) {
    const device::WorkId endless =
        Launch(client, "spin_for_ever", {.grid = {100, 1, 1}}, Arguments::Pack(client.At(kGate)));
    Spin(20000U * static_cast<std::uint64_t>(round));
    gpu().RequestKill(endless);
    EXPECT_EQ(Await(endless).status.code(), StatusCode::kCancelled);
  }
  AwaitOk(Launch(client, "mix", {}, MixArguments(client, 1)));
}

TEST_P(DeviceConformance, TrapOfContainedKernelFailsOnlyItsLaunchAndNamesPlace) {
  if (Skips(GetParam().isolation == device::Isolation::kContain, "contain kernels")) return;
  const TestClient good = NewClientWithKernels();
  TestClient bad = NewClient();
  auto module = Load(*bad.space,
                     ".version 8.0\n.target sm_75\n.address_size 64\n"
                     ".visible .entry traps()\n{\n  trap;\n}\n"
                     ".visible .entry runs()\n{\n  ret;\n}\n");
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  bad.module = *std::move(module);
  for (int round = 0; round < 5; ++round) {
    const device::WorkId ahead = Launch(bad, "runs", {.grid = {9, 1, 1}, .stream = 1}, {});
    const device::WorkId fault = Launch(bad, "traps", {.grid = {9, 1, 1}, .stream = 1}, {});
    const device::WorkId fine =
        Launch(good, "mix", {.grid = {50, 1, 1}, .stream = 2}, MixArguments(good, 3));
    AwaitOk(ahead);
    const device::Completion completion = Await(fault);
    EXPECT_EQ(completion.status.code(), StatusCode::kKernelFault);
    EXPECT_NE(completion.status.message().find("kernel 'traps' ended early: trap at line 6 of "
                                               "'traps' [block ("),
              std::string::npos)
        << completion.status.ToString();
    AwaitOk(fine);
    AwaitOk(Launch(bad, "runs", {.grid = {9, 1, 1}, .stream = 3}, {}));
  }
  EXPECT_EQ(gpu().loss(), nullptr);
}

TEST_P(DeviceConformance, WorkKilledBeforeItStartsNeverRuns) {
  if (SkipsUnlessItKills()) return;
  const TestClient client = NewClientWithKernels();
  const device::WorkId plug = Plug(client, kGate);
  const device::WorkId killed =
      Launch(client, "mix", {.grid = {10, 1, 1}}, MixArguments(client, 1));
  gpu().RequestKill(killed);
  gpu().RequestKill(plug);
  EXPECT_EQ(Await(killed).status.code(), StatusCode::kCancelled);
  EXPECT_EQ(Await(plug).status.code(), StatusCode::kCancelled);
  EXPECT_EQ(ReadWords(client, kRuns, 10), std::vector<std::uint32_t>(10, 0));
}

TEST_P(DeviceConformance, FaultEndsItsWorkAndNothingElse) {
  if (SkipsUnlessItIsolates() || SkipsWhereNoAddressFaults()) return;
  const TestClient bad = NewClientWithKernels();
  const TestClient good = NewClientWithKernels();
  std::vector<device::WorkId> faulty;
  std::vector<device::WorkId> fine;
  for (int i = 0; i < 10; ++i) {
    faulty.push_back(Launch(bad, "fault_in_block", {.grid = {50, 1, 1}, .stream = 1},
                            Arguments::Pack(bad.At(kRuns), 25U, bad.At(8 * kMebibyte))));
    fine.push_back(Launch(good, "mix", {.grid = {50, 1, 1}, .stream = 2}, MixArguments(good, 3)));
  }
  for (const device::WorkId id : faulty) {
    EXPECT_EQ(Await(id).status.code(), StatusCode::kKernelFault);
  }
  for (const device::WorkId id : fine) AwaitOk(id);
  EXPECT_EQ(ReadWords(good, kRuns, 50), std::vector<std::uint32_t>(50, 10));
  // The client of the faulting kernel continues to work, too.
  AwaitOk(Launch(bad, "mix", {}, MixArguments(bad, 1)));
}

TEST_P(DeviceConformance, FaultNamesKernelBlockThreadLineAndAddress) {
  if (SkipsUnlessItIsolates() || SkipsWhereNoAddressFaults()) return;
  const TestClient client = NewClientWithKernels();
  const std::uint64_t beyond = client.At(8 * kMebibyte);
  const device::Completion completion =
      Await(Launch(client, "fault_in_block", {.grid = {9, 1, 1}},
                   Arguments::Pack(client.At(kRuns), 7U, beyond)));
  ASSERT_EQ(completion.status.code(), StatusCode::kKernelFault);
  EXPECT_FALSE(completion.stopped);
  const std::string& text = completion.status.message();
  std::array<char, 32> address{};
  std::snprintf(address.data(), address.size(), "0x%llx", static_cast<unsigned long long>(beyond));
  const std::array<std::string, 5> parts{"fault_in_block",
                                         GetParam().claims ? "block (" : "block (7,0,0)",
                                         "thread (0,0,0)", "line ", address.data()};
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
  }
}

// A waiting thread is woken when completions become available, and not for each of them.
TEST_P(DeviceConformance, WakesAtMostOncePerCallThatTakesCompletions) {
  if (Skips(!GetParam().is_polled, "wake anyone")) return;
  const TestClient client = NewClientWithKernels();
  std::array<device::Completion, 8> out;
  ASSERT_EQ(gpu().TakeCompletions(out), 0U);
  const std::uint64_t before = wakes();
  for (int i = 0; i < 5; ++i) Launch(client, "mix", {.grid = {3, 1, 1}}, MixArguments(client, 1));
  // Five further launches after the wake, without a call in between, must cause no further wake.
  WaitForWake(before);
  for (int i = 0; i < 5; ++i) Launch(client, "mix", {.grid = {3, 1, 1}}, MixArguments(client, 1));
  std::size_t taken = 0;
  std::size_t calls = 0;
  while (taken < 10) {
    const std::uint64_t seen = wakes();
    ++calls;
    const std::size_t count = gpu().TakeCompletions(out);
    taken += count;
    if (taken < 10 && count < out.size()) WaitForWake(seen);
  }
  EXPECT_LE(wakes() - before, calls);
}

TEST_P(DeviceConformance, TimesOfACompletionAreInOrder) {
  const TestClient client = NewClientWithKernels();
  const device::WorkId first =
      Launch(client, "mix", {.grid = {100, 1, 1}}, MixArguments(client, 10));
  const device::WorkId second =
      Launch(client, "mix", {.grid = {100, 1, 1}}, MixArguments(client, 10));
  const device::Completion a = Await(first);
  const device::Completion b = Await(second);
  EXPECT_LT(a.started, a.ended);
  EXPECT_LE(a.ended, b.started) << "work of one stream overlapped";
  EXPECT_LT(b.started, b.ended);
}

}  // namespace
}  // namespace gpushared::testing
