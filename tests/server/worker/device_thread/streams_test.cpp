// SPDX-License-Identifier: Apache-2.0
// The path of commands from a client's ring to its timelines.
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ipc/doorbell.h"
#include "tests/server/worker/harness.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> Parameters(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  const std::uint64_t values[] = {a, b, c};
  std::vector<std::byte> bytes(sizeof values);
  std::memcpy(bytes.data(), values, sizeof values);
  return bytes;
}

TEST(WorkerStreams, LaunchesReachTheDeviceInOrderWithTheirParameters) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();

  constexpr std::uint64_t kLaunches = 3000;  // More than the worker takes at once.
  Sequence last = 0;
  for (std::uint64_t i = 0; i < kLaunches; ++i) {
    Sequence sequence = 0;
    while (sequence == 0) sequence = client.Launch(0, 0, 1, {.x = 2}, Parameters(i, i * i, 7));
    last = sequence;
  }
  ASSERT_TRUE(client.AwaitFinished(0, last));

  const auto seen = worker.device().submissions();
  ASSERT_EQ(seen.size(), kLaunches);
  for (std::uint64_t i = 0; i < kLaunches; ++i) {
    EXPECT_EQ(seen[i].kernel, "three");
    EXPECT_EQ(seen[i].units, 2u);
    EXPECT_EQ(seen[i].parameters, Parameters(i, i * i, 7));
  }
}

// Uses more threads than the device thread wakes itself.
TEST(WorkerStreams, WakesAllThreadsThatWaitForCommand) {
  constexpr std::uint32_t kThreads = 60;
  WorkerHarness worker;
  const RawClient client = [&] {
    RawClient made = worker.Client();
    made.Launch(0, 0, 0);
    return made;
  }();
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1U);
  std::atomic<std::uint32_t> seen{0};
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] { seen += client.AwaitFinished(0, 1) ? 1 : 0; });
  }
  while (client.commands().waiting.load() < kThreads) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  worker.device().FinishAll();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen.load(), kThreads) << "who is forgotten waits for 30 s";
}

std::uint64_t GetSleeps(WorkerHarness& worker) {
  const auto status = nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kStatus));
  return status.at("sleeps").get<std::uint64_t>();
}

// Returns how often the worker sleeps while a client of this class sends `commands` commands with a
// pause after each.
std::uint64_t SleepsAmidPauses(SchedulingClass of, std::chrono::milliseconds pause, int commands) {
  server::WorkerOptions options;
  options.settings.policy = "priority";
  options.spin = server::SpinTimes{.budget = std::chrono::milliseconds(1), .has_spare_cores = true};
  WorkerHarness worker(kAtOnce, std::move(options));
  RawClient client = worker.Client({.client_class = of});
  const std::uint64_t before = GetSleeps(worker);
  for (int i = 0; i < commands; ++i) {
    EXPECT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
    std::this_thread::sleep_for(pause);
  }
  return GetSleeps(worker) - before;
}

// The device thread spins for 20 ms before it sleeps, and for 120 ms while a high-class client is
// connected.
TEST(WorkerStreams, DeviceThreadStaysAwakeOnSpareCores) {
  using std::chrono::milliseconds;
  constexpr int kCommands = 8;
  EXPECT_LT(SleepsAmidPauses(SchedulingClass::kNormal, milliseconds(2), kCommands), kCommands / 2U);
  EXPECT_GE(SleepsAmidPauses(SchedulingClass::kNormal, milliseconds(40), kCommands), kCommands);
  EXPECT_LT(SleepsAmidPauses(SchedulingClass::kHigh, milliseconds(40), kCommands), kCommands / 2U);
}

bool RingInVain(const RawClient& client) {
  const std::uint64_t one = 1;
  return ::write(client.doorbell(), &one, sizeof one) == sizeof one;
}

// Returns the number after `key` in the kernel's description of a descriptor of this process, or
// -1.
long long FdInfo(const std::filesystem::path& info, const std::string& key) {
  std::ifstream file(info);
  std::string word;
  while (file >> word) {
    if (long long number = -1; word == key && file >> number) return number;
  }
  return -1;
}

// Returns whether a ring of this client's doorbell would end the sleep of its worker, which runs in
// this process. Returns no value if the kernel does not provide this information.
std::optional<bool> IsHeard(const RawClient& client) {
  const std::filesystem::path infos("/proc/self/fdinfo");
  const long long id = FdInfo(infos / std::to_string(client.doorbell()), "eventfd-id:");
  if (id < 0) return {};
  std::optional<bool> is_heard;
  for (const auto& each : std::filesystem::directory_iterator(infos)) {
    std::ifstream epoll(each.path());
    for (std::string line; std::getline(epoll, line);) {
      int fd = -1;
      unsigned events = 0;
      if (std::sscanf(line.c_str(), "tfd: %d events: %x", &fd, &events) != 2) continue;
      if (FdInfo(infos / std::to_string(fd), "eventfd-id:") == id)
        is_heard = (events & EPOLLIN) != 0;
    }
  }
  return is_heard;
}

// A client whose commands the worker cannot take must not wake it, because each wake-up occupies a
// core for a moment.
TEST(WorkerStreams, FullClientCausesNoWakeUps) {
  constexpr std::uint64_t kRings = 200;
  WorkerHarness worker;
  RawClient client = worker.Client();
  Sequence last = 0;
  while (const Sequence sequence = client.Launch(0, 0, 0)) last = sequence;

  const std::uint64_t before = GetSleeps(worker);
  for (std::uint64_t i = 0; i < kRings; ++i) {
    ASSERT_TRUE(RingInVain(client));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_LT(GetSleeps(worker) - before, kRings / 4);

  // The worker listens to the client again when the client may proceed: first the worker reads
  // everything in the ring, then it finds the ring empty and goes to sleep.
  worker.device().RunAtOnce();
  ASSERT_TRUE(client.AwaitFinished(0, last));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
}

TEST(WorkerStreams, IgnoresUselessRingsForAWhile) {
  constexpr std::uint64_t kRings = 400;
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
  const auto begun = std::chrono::steady_clock::now();
  const std::uint64_t before = GetSleeps(worker);
  for (std::uint64_t i = 0; i < kRings; ++i) {
    ASSERT_TRUE(RingInVain(client));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Each pause ends with one more ring that is heard.
  const auto pauses = static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begun) /
                                                 std::chrono::milliseconds(64));
  EXPECT_LT(GetSleeps(worker) - before, kRings / 4 + 3 * pauses);

  // The client's commands run nevertheless.
  constexpr int kCommands = 20;
  for (int i = 0; i < kCommands; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
  }
}

// The worker does not drain its eventfd, which therefore reports an old ring whenever the worker
// listens again.
TEST(WorkerStreams, QuietClientCausesNoWakeUps) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(RingInVain(client));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // Lets the last pause end.
  const std::uint64_t before = GetSleeps(worker);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_LT(GetSleeps(worker) - before, 6U);
}

// A client rings for each answer that it takes, because that may have freed space for which the
// worker waits.
TEST(WorkerStreams, HearsClientThatRingsForAnswers) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  if (!IsHeard(client)) GTEST_SKIP() << "this kernel does not say what an epoll instance watches";
  constexpr int kCommands = 60;
  Sequence last = 0;
  for (int i = 0; i < kCommands; ++i) last = client.Launch(0, 0, 0);
  ASSERT_TRUE(client.AwaitFinished(0, last));
  for (int i = 0; i < kCommands; ++i) {
    ASSERT_TRUE(RingInVain(client));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ASSERT_TRUE(*IsHeard(client)) << "after answer " << i;
  }
}

TEST(WorkerStreams, HearsClientThatRingsForCommands) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  if (!IsHeard(client)) GTEST_SKIP() << "this kernel does not say what an epoll instance watches";
  constexpr int kCommands = 60;
  for (int i = 0; i < kCommands; ++i) {
    ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // The worker sleeps again.
    ASSERT_TRUE(*IsHeard(client)) << "after command " << i;
  }
}

TEST(WorkerStreams, CopiesAndFillsMoveTheBytesTheyName) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  const Result<std::uint32_t> staging_buffer = client.AddStagingBuffer(64 * 1024);
  ASSERT_TRUE(staging_buffer.ok()) << staging_buffer.status().ToString();
  const std::span<std::byte> bytes = client.staging_buffer(*staging_buffer);

  std::memcpy(bytes.data(), "sixteen bytes it", 16);
  client.CopyToDevice(0, *staging_buffer, 0, client.base() + 4096, 16);
  client.Fill(0, client.base() + 4096 + 7, 1, 0x2d);
  const Sequence last = client.CopyToHost(0, *staging_buffer, 1024, client.base() + 4096, 16);
  ASSERT_TRUE(client.AwaitFinished(0, last));

  EXPECT_EQ(std::memcmp(bytes.data() + 1024, "sixteen-bytes it", 16), 0);
}

TEST(WorkerStreams, FailedCommandFailsOnlyLaterCommandsOfItsStream) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();

  client.CreateStream(1);
  const Sequence bad = client.Launch(0, 9, 0);  // Module 9 does not exist.
  client.Launch(0, 0, 0);
  const Sequence last = client.Launch(0, 0, 0);
  const Sequence other = client.Launch(1, 0, 0);
  ASSERT_TRUE(client.AwaitFinished(0, last));
  ASSERT_TRUE(client.AwaitFinished(1, other));

  const auto notice = client.NextCompletion();
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->kind, ipc::CompletionKind::kError);
  EXPECT_EQ(notice->code, StatusCode::kNotFound);
  EXPECT_EQ(notice->id, (ipc::CommandId{0, bad}));
  EXPECT_FALSE(client.TakeCompletion()) << "a stream's error is told once";
  EXPECT_EQ(worker.device().submissions().size(), 1u) << "only the other stream's launch runs";

  const auto text = client.Ask<ipc::ErrorText>(ipc::DescribeError{.stream = 0});
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->sequence, bad);
  EXPECT_THAT(text->status.message(), HasSubstr("there is no module 9"));
  EXPECT_THAT(text->status.message(), HasSubstr("client 1 'client'"));
  const auto none = client.Ask<ipc::ErrorText>(ipc::DescribeError{.stream = 1});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->status.ok());
}

TEST(WorkerStreams, DeviceErrorFailsStreamAndWithdrawsQueuedCommands) {
  WorkerHarness worker({.preemption = device::Preemption::kBetweenCommands});
  RawClient client = worker.Client();
  // A second client, because a client that is alone has two commands on the device.
  const RawClient peer = worker.Client();

  client.CreateStream(1);
  const Sequence first = client.Launch(0, 0, 0);
  // Waits, because of launches that arrive together, the other stream's might be submitted first.
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  for (int i = 0; i < 20; ++i) client.Launch(0, 0, 0);
  const Sequence other = client.Launch(1, 0, 0);
  const Sequence last = client.Launch(0, 0, 0);
  ASSERT_TRUE(client.AwaitFinished(2, client.CreateStream(2))) << "all before it is taken";
  worker.device().FinishOldest(Status(StatusCode::kKernelFault, "block 3 left its memory"));
  worker.device().RunAtOnce();

  ASSERT_TRUE(client.AwaitFinished(0, last));
  const auto notice = client.NextCompletion();
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->code, StatusCode::kKernelFault);
  EXPECT_EQ(notice->id, (ipc::CommandId{0, first}));
  EXPECT_GT(notice->started_ns, 0u);
  EXPECT_TRUE(client.AwaitFinished(1, other));
  EXPECT_EQ(worker.device().submissions().size(), 2u) << "the other stream's launch still runs";
}

TEST(WorkerStreams, DestroyingAStreamThatFailedMakesItsNumberUsableAgain) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();

  client.CreateStream(5);
  client.Launch(5, 9, 0);
  client.DestroyStream(5);
  client.CreateStream(5);
  const Sequence good = client.Launch(5, 0, 0);
  ASSERT_TRUE(client.AwaitFinished(5, good));

  EXPECT_EQ(worker.device().submissions().size(), 1u);
  const auto text = client.Ask<ipc::ErrorText>(ipc::DescribeError{.stream = 5});
  ASSERT_TRUE(text.ok());
  EXPECT_TRUE(text->status.ok());
}

TEST(WorkerStreams, WaitDelaysLaterCommandsUntilStreamReachesPoint) {
  WorkerHarness worker;
  RawClient client = worker.Client();

  client.CreateStream(1);
  const Sequence first = client.Launch(0, 0, 0);
  client.WaitFor(1, 0, first);
  const Sequence second = client.Launch(1, 0, 1, {}, Parameters(1, 2, 3));
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  // Command 1 is the creation of the stream.
  EXPECT_TRUE(client.AwaitFinished(1, 1));
  EXPECT_EQ(client.finished(1), 1u) << "the wait is not over";
  worker.device().FinishOldest();
  const auto seen = worker.device().WaitForSubmissions(2);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].kernel, "null");
  EXPECT_EQ(seen[1].kernel, "three");
  worker.device().FinishAll();
  EXPECT_TRUE(client.AwaitFinished(1, second));
}

TEST(WorkerStreams, WaitingForAFailedCommandCancelsTheWaitingStream) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();

  client.CreateStream(1);
  const Sequence bad = client.Launch(0, 9, 0);
  const Sequence wait = client.WaitFor(1, 0, bad);
  const Sequence last = client.Launch(1, 0, 0);
  ASSERT_TRUE(client.AwaitFinished(1, last));

  ASSERT_TRUE(client.NextCompletion());
  const auto notice = client.NextCompletion();
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->id, (ipc::CommandId{1, wait}));
  EXPECT_EQ(notice->code, StatusCode::kCancelled);
  EXPECT_TRUE(worker.device().submissions().empty());
}

// The failed stream has been destroyed and created again before the wait, but its skipped commands
// remain failed.
TEST(WorkerStreams, WaitSeesFailureOfEarlierStreamWithSameNumber) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();

  client.CreateStream(1);
  const Sequence bad = client.Launch(1, 9, 0);
  client.DestroyStream(1);
  const Sequence again = client.CreateStream(1);
  ASSERT_TRUE(client.AwaitFinished(1, again));
  const Sequence wait = client.WaitFor(0, 1, bad);
  ASSERT_TRUE(client.AwaitFinished(0, wait));

  ASSERT_TRUE(client.NextCompletion());
  const auto notice = client.NextCompletion();
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->id, (ipc::CommandId{0, wait}));
  EXPECT_EQ(notice->code, StatusCode::kCancelled);
}

// The waiting stream is registered with the stream that it waits for. After that wait has been
// skipped, a wait for another stream must still be woken.
TEST(WorkerStreams, StreamWithSkippedWaitCanWaitForOtherStream) {
  WorkerHarness worker;
  RawClient client = worker.Client();
  // A second client, because a client that is alone has two commands on the device.
  const RawClient peer = worker.Client();
  for (const std::uint32_t stream : {1u, 2u, 3u}) client.CreateStream(stream);

  const Sequence slow = client.Launch(1, 0, 0);
  const Sequence failing = client.Launch(3, 0, 0);
  client.WaitFor(3, 1, slow);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  // The window submits one command of unknown duration at a time, `slow` first.
  worker.device().FinishOldest();
  ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
  const Sequence endless = client.Launch(1, 0, 0);
  client.WaitFor(3, 1, endless);
  worker.device().FinishOldest(Status(StatusCode::kKernelFault, "fault"));
  client.DestroyStream(3);
  client.CreateStream(3);
  const Sequence other = client.Launch(2, 0, 0);
  const Sequence wait = client.WaitFor(3, 2, other);
  (void)failing;
  worker.device().RunAtOnce();

  EXPECT_TRUE(client.AwaitFinished(3, wait));
}

// Each round hits the worker at a different point between its last check of the rings and its
// sleep.
TEST(WorkerStreams, LosesNoCommandBeforeSleep) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  std::uint32_t noise = 1;
  for (int round = 0; round < 10'000; ++round) {
    const Sequence launch = client.Launch(0, 0, 0);
    // Spins, so that the next command arrives while the worker is about to sleep and not long
    // after.
    for (int i = 0; i < 5000 && client.finished(0) < launch; ++i) ipc::SpinPause();
    ASSERT_TRUE(client.AwaitFinished(0, launch)) << "round " << round;
    noise = noise * 1664525u + 1013904223u;
    for (std::uint32_t pause = noise >> 26; pause > 0; --pause) ipc::SpinPause();
  }
}

TEST(WorkerStreams, MarkReportsWhenStreamReachesIt) {
  WorkerHarness worker;
  RawClient client = worker.Client();

  const Sequence idle = client.Mark(0);
  const auto first = client.NextCompletion();
  client.Launch(0, 0, 0);
  const Sequence after = client.Mark(0);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  EXPECT_FALSE(client.TakeCompletion());
  worker.device().FinishOldest();
  const auto second = client.NextCompletion();

  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->id, (ipc::CommandId{0, idle}));
  EXPECT_EQ(second->id, (ipc::CommandId{0, after}));
  EXPECT_EQ(first->kind, ipc::CompletionKind::kMark);
  EXPECT_EQ(second->code, StatusCode::kOk);
  EXPECT_GT(first->ended_ns, 0u);
  EXPECT_GT(second->ended_ns, first->ended_ns);
}

// While the worker has plenty of a client's commands it leaves the rest in the ring, but not
// indefinitely, because later commands may be for another stream.
TEST(WorkerStreams, ReadsCommandsOfIdleStreamBehindBusyOne) {
  WorkerHarness worker({.preemption = device::Preemption::kBetweenCommands});
  RawClient client = worker.Client();

  client.CreateStream(1);
  for (int i = 0; i < 500; ++i) client.Launch(0, 0, 0);
  const Sequence mark = client.Mark(1);
  const auto notice = client.NextCompletion();

  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->id, (ipc::CommandId{1, mark}));
  EXPECT_EQ(client.finished(0), 0u) << "nothing has left the device";
}

TEST(WorkerStreams, MarkOfFailedStreamReportsFailure) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();

  client.Launch(0, 9, 0);
  client.Mark(0);
  ASSERT_TRUE(client.NextCompletion());
  const auto mark = client.NextCompletion();

  ASSERT_TRUE(mark);
  EXPECT_EQ(mark->kind, ipc::CompletionKind::kMark);
  EXPECT_EQ(mark->code, StatusCode::kCancelled);
  EXPECT_EQ(mark->ended_ns, 0u);
}

// 5000 marks are five times the capacity of the completion ring: the worker must stop taking
// commands until the client has freed space, and resume then without a ring of the doorbell.
TEST(WorkerStreams, MarksWaitForSpaceInCompletionRing) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();

  constexpr Sequence kMarks = 5000;
  Sequence published = 0, seen = 0;
  while (seen < kMarks) {
    while (published < kMarks) {
      const Sequence sequence = client.Mark(0);
      if (sequence == 0) break;
      published = sequence;
    }
    const auto notice = client.NextCompletion();
    ASSERT_TRUE(notice) << seen << " of " << published;
    EXPECT_EQ(notice->id.sequence, ++seen);
  }
  EXPECT_TRUE(client.AwaitFinished(0, kMarks));
}

TEST(WorkerStreams, RejectsInvalidCommandsWithReason) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  ASSERT_TRUE(client.AddStagingBuffer(64 * 1024).ok());
  const std::uint64_t mapped = std::uint64_t{4} << 20;
  struct Case {
    std::function<void(std::uint32_t stream)> submit;
    StatusCode code;
    const char* says;
  };
  const std::vector<Case> cases = {
      {[&](std::uint32_t s) { client.Launch(s, 0, 17); }, StatusCode::kNotFound,
       "module 0 has 3 kernels, asked for number 17"},
      {[&](std::uint32_t s) { client.Launch(s, 0, 2); }, StatusCode::kUnsupported,
       "no such instruction"},
      {[&](std::uint32_t s) { client.Launch(s, 0, 1); }, StatusCode::kInvalidArgument,
       "kernel 'three' takes 24 bytes of parameters, got 0"},
      {[&](std::uint32_t s) { client.Fill(s, client.base() + mapped - 8, 9, 0); },
       StatusCode::kInvalidArgument, "not inside the 4194304 mapped bytes"},
      {[&](std::uint32_t s) { client.Fill(s, client.base() - 1, 1, 0); },
       StatusCode::kInvalidArgument, "not inside"},
      {[&](std::uint32_t s) { client.CopyToDevice(s, 7, 0, client.base(), 8); },
       StatusCode::kNotFound, "there is no staging buffer 7"},
      {[&](std::uint32_t s) { client.CopyToHost(s, 0, 65530, client.base(), 8); },
       StatusCode::kInvalidArgument, "not inside the 65536 bytes of staging buffer 0"},
  };
  for (std::uint32_t i = 0; i < cases.size(); ++i) {
    const std::uint32_t stream = i + 1;
    client.CreateStream(stream);
    cases[i].submit(stream);
    const auto notice = client.NextCompletion();
    ASSERT_TRUE(notice) << cases[i].says;
    EXPECT_EQ(notice->code, cases[i].code) << cases[i].says;
    const auto text = client.Ask<ipc::ErrorText>(ipc::DescribeError{.stream = stream});
    ASSERT_TRUE(text.ok());
    EXPECT_THAT(text->status.message(), HasSubstr(cases[i].says));
  }
  EXPECT_TRUE(worker.device().submissions().empty());
}

// A message for each rejected launch would format 400 GB of text.
TEST(WorkerStreams, FormatsMessageOfRejectedLaunchOnlyOnRequest) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  const std::string name(4000, 'n');
  const std::string reason(std::size_t{20} << 20, 'r');
  ASSERT_TRUE(client.LoadModule(1, name + " 0 " + reason + "\n").ok());
  Sequence last = 0;
  for (int i = 0; i < 20'000; ++i) {
    Sequence sequence = 0;
    while (sequence == 0) sequence = client.Launch(0, 1, 0);
    last = sequence;
  }
  ASSERT_TRUE(client.AwaitFinished(0, last));
  const auto text = client.Ask<ipc::ErrorText>(ipc::DescribeError{.stream = 0});
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_EQ(text->status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(text->sequence, 1u);
  const std::string& message = text->status.message();
  EXPECT_THAT(message, HasSubstr("kernel '" + std::string(100, 'n') + "...': rrr"));
  EXPECT_THAT(message, HasSubstr("... [client 1 'client'"));
  EXPECT_LE(message.size(), std::size_t{8} << 10);
}

TEST(WorkerStreams, NamesUnloadedKernelByItsNumber) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  ASSERT_TRUE(client.LoadModule(1, "first 0 no such instruction\n").ok());
  ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 1, 0)));
  ASSERT_TRUE(client.Ask<ipc::Done>(ipc::UnloadModule{.module = 1}).ok());
  ASSERT_TRUE(client.LoadModule(1, "second 0\n").ok());
  const auto text = client.Ask<ipc::ErrorText>(ipc::DescribeError{.stream = 0});
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_THAT(text->status.message(),
              HasSubstr("launch rejected: kernel 0 of module 1, which has been unloaded since"));
}

// A launch that has left its stream does not keep its module loaded.
TEST(WorkerStreams, UnloadedModuleIsFreedAfterItsLastLaunch) {
  WorkerHarness worker;
  RawClient client = worker.Client();
  ASSERT_TRUE(client.LoadModule(1, "first 0\n").ok());
  client.Launch(0, 1, 0);
  const Sequence last = client.Launch(0, 1, 0);
  ASSERT_NE(worker.device().WaitForSubmissions(1).size(), 0u);
  ASSERT_TRUE(client.Ask<ipc::Done>(ipc::UnloadModule{.module = 1}).ok());
  EXPECT_EQ(worker.device().modules_alive(), 2) << "launches need it";
  worker.device().RunAtOnce();
  ASSERT_TRUE(client.AwaitFinished(0, last));
  EXPECT_TRUE(Eventually([&] { return worker.device().modules_alive() == 1; }));
}

TEST(WorkerStreams, LaunchesBeyondWhatDeviceAndKernelAllowAreRejected) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  ASSERT_TRUE(client.LoadModule(1, "small 0\n").ok());
  struct Case {
    std::uint32_t module;
    std::array<std::uint32_t, 3> grid;
    std::array<std::uint16_t, 3> block;
    std::uint32_t shared_bytes;
    const char* says;  // Part of the error message; null if the launch runs.
  };
  const std::vector<Case> cases = {
      {0, {1u << 20, 200, 100}, {2, 16, 16}, 32768, nullptr},
      {0, {(1u << 20) + 1, 1, 1}, {1, 1, 1}, 0, "1048577 blocks along x"},
      {0, {1, 201, 1}, {1, 1, 1}, 0, "201 blocks along y, device step:0 allows 1 to 200"},
      {0, {1, 1, 101}, {1, 1, 1}, 0, "101 blocks along z"},
      {0, {1, 1, 1}, {513, 1, 1}, 0, "513 threads per block along x"},
      {0, {1, 1, 1}, {1, 129, 1}, 0, "129 threads per block along y"},
      {0, {1, 1, 1}, {1, 1, 17}, 0, "17 threads per block along z"},
      {0, {1, 1, 1}, {32, 17, 1}, 0, "544 threads per block, it allows 512"},
      {0, {1, 1, 1}, {1, 1, 1}, 32769, "32769 bytes of static and dynamic shared memory"},
      {1, {1, 1, 1}, {64, 1, 1}, 28672, nullptr},
      {1, {1, 1, 1}, {65, 1, 1}, 0, "65 threads per block, it allows 64"},
      {1, {1, 1, 1}, {1, 1, 1}, 28673, "32769 bytes of static and dynamic shared memory"},
  };
  for (std::uint32_t i = 0; i < cases.size(); ++i) {
    const Case& each = cases[i];
    const std::uint32_t stream = i + 1;
    client.CreateStream(stream);
    ipc::LaunchRecord record = GetLaunch(stream, each.module, 0, {}, 0);
    for (std::size_t axis = 0; axis < 3; ++axis) {
      record.grid[axis] = each.grid[axis];
      record.block[axis] = each.block[axis];
    }
    record.dynamic_shared_bytes = each.shared_bytes;
    const Sequence launch = client.Publish(record);
    client.Ring();
    ASSERT_TRUE(client.AwaitFinished(stream, launch));
    const auto text = client.Ask<ipc::ErrorText>(ipc::DescribeError{.stream = stream});
    ASSERT_TRUE(text.ok());
    EXPECT_THAT(text->status.message(), HasSubstr(each.says != nullptr ? each.says : ""));
    EXPECT_EQ(text->status.ok(), each.says == nullptr) << i << ": " << text->status.ToString();
  }
  EXPECT_EQ(worker.device().submissions().size(), 2u);
}

TEST(WorkerStreams, CopiesParametersFromStagingBufferWhenRead) {
  WorkerHarness worker;
  RawClient client = worker.Client();
  const std::string kernel = "large 8192\n";
  ASSERT_TRUE(client.LoadModule(1, kernel).ok());
  const Result<std::uint32_t> staging_buffer = client.AddStagingBuffer(64 * 1024);
  ASSERT_TRUE(staging_buffer.ok());
  std::memset(client.staging_buffer(*staging_buffer).data(), 1, 8192);

  ipc::LaunchRecord record;
  record.header.op = static_cast<std::uint8_t>(ipc::Op::kLaunch);
  record.header.flags = ipc::kFlagParametersInStagingBuffer;
  record.module = 1;
  for (auto& grid : record.grid) grid = 1;
  for (auto& block : record.block) block = 1;
  record.parameter_bytes = 8192;
  record.staging_buffer = *staging_buffer;
  // A second launch, which is taken while the first one is on the device.
  client.Publish(record);
  const Sequence last = client.Publish(record);
  client.Ring();
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  ASSERT_TRUE(Eventually([&] { return client.commands().waiting.load() == 0; }));
  // An answer on the socket proves that the ring was visited.
  ASSERT_TRUE(client.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).ok());
  std::memset(client.staging_buffer(*staging_buffer).data(), 2, 8192);
  worker.device().RunAtOnce();
  ASSERT_TRUE(client.AwaitFinished(0, last));

  for (const auto& submission : worker.device().submissions()) {
    EXPECT_EQ(submission.parameters, std::vector<std::byte>(8192, std::byte{1}));
  }
}

}  // namespace
}  // namespace gpushared::testing
