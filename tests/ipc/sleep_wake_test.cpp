// SPDX-License-Identifier: Apache-2.0
// Two processes that both sleep whenever they have no work: a lost wake-up in either direction
// leaves both asleep. The bounded sleeps then time out and count as failures.
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "ipc/doorbell.h"
#include "ipc/shared_segment.h"
#include "ipc/tag_ring.h"

namespace gpushared::ipc {
namespace {

// Far beyond any scheduling delay, so a time-out means a lost wake-up.
constexpr int kSliceMs = 20'000;

// A pause of 0 to about 40 us, often 0, so that the two sides meet in every phase.
class RandomDelay {
 public:
  explicit RandomDelay(unsigned seed) : random_(seed) {}
  void operator()() {
    const auto turns = random_() % 8 < 4 ? 0 : random_() % 1500;
    for (unsigned i = 0; i < turns; ++i) SpinPause();
  }

 private:
  std::minstd_rand random_;
};

struct Memory {
  SharedSegment command, completion, page;
  UniqueFd doorbell;
};

// Segments like a session's, except that both processes inherit one writable mapping from the test
// (a session maps them again from descriptors).
Memory MakeMemory() {
  Memory memory;
  const auto make = [](const char* name, std::size_t bytes) {
    Result<SharedSegment> segment = SharedSegment::Create({.name = name, .bytes = bytes});
    EXPECT_TRUE(segment.ok()) << segment.status().ToString();
    return std::move(*segment);
  };
  memory.command = make("command", kCommandSegmentBytes);
  memory.completion = make("completion", kCompletionSegmentBytes);
  memory.page = make("page", kWorkerPageBytes);
  memory.doorbell = std::move(*MakeDoorbell());
  return memory;
}

SharedSegment MapAgain(const SharedSegment& segment, SharedSegment::Access access) {
  Result<SharedSegment> mapped = SharedSegment::Map(UniqueFd(::dup(segment.fd())),
                                                    {.bytes = segment.size(), .access = access});
  return std::move(*mapped);
}

// The worker: takes records one by one, publishes each on its timeline, and sleeps when the ring is
// empty. Exit code 0: all seen, and no sleep timed out.
int RunWorker(const Memory& memory, std::uint64_t records, unsigned seed) {
  const SharedSegment command = MapAgain(memory.command, SharedSegment::Access::kReadOnly);
  const SharedSegment completion = MapAgain(memory.completion, SharedSegment::Access::kReadWrite);
  const SharedSegment page = MapAgain(memory.page, SharedSegment::Access::kReadWrite);
  const auto& in = command.As<const CommandSegment>();
  auto& out = completion.As<CompletionSegment>();
  TagRingReader reader(in.granules, out.granules_taken);
  CompletionDoorbell bell(out.event, in.waiting);
  WorkerSleep sleep(page.As<WorkerPage>());
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{EPOLLIN | EPOLLET, {}};
  ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, memory.doorbell.get(), &event);
  RandomDelay delay(seed);
  const auto copy = std::make_unique<RecordCopy>();
  for (std::uint64_t seen = 0; seen < records;) {
    switch (reader.TryRead(*copy)) {
      case ReadResult::kPeerBroken:
        return 3;
      case ReadResult::kRecord:
        ++seen;
        delay();
        out.timeline[0].store(seen, std::memory_order_release);
        bell.Ring();
        break;
      case ReadResult::kEmpty:
        delay();
        if (sleep.Announce([&] { return reader.HasRecord(); })) {
          const int ready = ::epoll_wait(epoll.get(), &event, 1, kSliceMs);
          sleep.Cancel();
          if (ready == 0) return 2;  // The client never rang.
        }
    }
  }
  return 0;
}

class SleepWake : public testing::Test {
 protected:
  static constexpr std::uint64_t kRecords = 8'000;
};

TEST_F(SleepWake, LosesNoWakeUpBetweenTwoProcesses) {
  const Memory memory = MakeMemory();
  const pid_t worker = ::fork();
  ASSERT_GE(worker, 0);
  if (worker == 0) ::_exit(RunWorker(memory, kRecords, 17));

  const SharedSegment command = MapAgain(memory.command, SharedSegment::Access::kReadWrite);
  const SharedSegment completion = MapAgain(memory.completion, SharedSegment::Access::kReadOnly);
  const SharedSegment page = MapAgain(memory.page, SharedSegment::Access::kReadOnly);
  auto& out = command.As<CommandSegment>();
  const auto& in = completion.As<const CompletionSegment>();
  TagRingWriter writer(out.granules, in.granules_taken);
  ClientDoorbell bell(page.As<const WorkerPage>(), memory.doorbell.get());
  CompletionWaiter waiter(in.event, out.waiting);
  RandomDelay delay(4711);
  bool lost = false;
  for (std::uint64_t number = 1; number <= kRecords && !lost; ++number) {
    PlainRecord record;
    record.header.sequence = number;
    ASSERT_EQ(writer.TryWrite(record), WriteResult::kWritten);
    bell.Ring();
    delay();
    // Most records are awaited one by one. Some are sent in a burst, so that the worker also finds
    // work without being woken.
    if (number % 64 < 8 && number != kRecords) continue;
    const auto done = [&] { return in.timeline[0].load(std::memory_order_acquire) >= number; };
    lost = waiter.Wait(done, std::chrono::nanoseconds(0), std::chrono::milliseconds(kSliceMs)) !=
           WaitOutcome::kDone;
  }
  EXPECT_FALSE(lost) << "the worker's wake-up of the client was lost";
  if (lost) ::kill(worker, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(worker, &status, 0), worker);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "2: the client's wake-up of the worker was lost";
}

TEST_F(SleepWake, AwakeWorkerIsNotRung) {
  const Memory memory = MakeMemory();
  auto& page = memory.page.As<WorkerPage>();
  ClientDoorbell bell(page, memory.doorbell.get());
  EXPECT_FALSE(bell.Ring());
  WorkerSleep sleep(page);
  EXPECT_FALSE(sleep.Announce([] { return true; }));
  EXPECT_FALSE(bell.Ring());
  ASSERT_TRUE(sleep.Announce([] { return false; }));
  EXPECT_TRUE(bell.Ring());
  sleep.Cancel();
  EXPECT_FALSE(bell.Ring());
}

TEST_F(SleepWake, RingsOncePerSleep) {
  const Memory memory = MakeMemory();
  auto& page = memory.page.As<WorkerPage>();
  ClientDoorbell bell(page, memory.doorbell.get());
  WorkerSleep sleep(page);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(sleep.Announce([] { return false; }));
    EXPECT_TRUE(bell.Ring());
    EXPECT_FALSE(bell.Ring()) << "the worker is on its way";
    // Cancel may be omitted before the next Announce.
    if (i == 0) sleep.Cancel();
  }
}

// An eventfd at its maximum value rejects further increments; ringing it must not block.
TEST_F(SleepWake, RingingAFullDoorbellDoesNotBlock) {
  const Memory memory = MakeMemory();
  const std::uint64_t almost = ~std::uint64_t{0} - 1;
  ASSERT_EQ(::write(memory.doorbell.get(), &almost, sizeof almost), 8);
  ClientDoorbell bell(memory.page.As<WorkerPage>(), memory.doorbell.get());
  bell.Wake();
  SUCCEED();
}

// The worker publishes just after the waiter has checked and before it sleeps, so the count it
// sleeps on must be older than its check.
TEST_F(SleepWake, DetectsPublicationBetweenCheckAndSleep) {
  std::atomic<std::uint32_t> event{0}, waiting{0};
  std::atomic<std::uint64_t> timeline{0};
  CompletionDoorbell doorbell(event, waiting);
  CompletionWaiter waiter(event, waiting);
  int looks = 0;
  const auto done = [&] {
    const bool seen = timeline.load(std::memory_order_acquire) >= 1;
    if (++looks == 2) {  // This is the last check before the first sleep.
      timeline.store(1, std::memory_order_release);
      doorbell.Ring();
    }
    return seen;
  };
  EXPECT_EQ(waiter.Wait(done, std::chrono::nanoseconds(0), std::chrono::seconds(2)),
            WaitOutcome::kDone);
}

// The number of a client's sleeping threads is its own choice, and must not delay other clients.
TEST_F(SleepWake, RingWakesLimitedNumberAndReportsRest) {
  constexpr std::uint32_t kThreads = 20;
  std::atomic<std::uint32_t> event{0}, waiting{0}, awake{0};
  CompletionDoorbell doorbell(event, waiting);
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      waiting.fetch_add(1);
      while (FutexWait(event, 0, std::chrono::milliseconds(kSliceMs)) != FutexResult::kTimedOut &&
             event.load() == 0) {
      }
      awake.fetch_add(1);
    });
  }
  // Waits until all threads sleep. Until Ring, no thread changes `event`.
  while (waiting.load() < kThreads) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const CompletionDoorbell::Rung rung = doorbell.Ring();
  EXPECT_TRUE(rung.has_woken);
  EXPECT_EQ(rung.left_asleep, kThreads - CompletionDoorbell::kWakesPerRing);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(awake.load(), CompletionDoorbell::kWakesPerRing);
  EXPECT_EQ(FutexWake(doorbell.futex(), rung.left_asleep), rung.left_asleep);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(SleepWake, LimitsWakesForFalseWaiterCount) {
  std::atomic<std::uint32_t> event{0}, waiting{0xffffffff};
  CompletionDoorbell doorbell(event, waiting);
  EXPECT_EQ(doorbell.Ring().left_asleep, 0U) << "fewer were woken than may be in one call";
}

TEST_F(SleepWake, WaitEndsAfterItsSliceWhenNothingComes) {
  std::atomic<std::uint32_t> event{0}, waiting{0};
  CompletionWaiter waiter(event, waiting);
  EXPECT_EQ(waiter.Wait([] { return false; }, std::chrono::microseconds(20),
                        std::chrono::milliseconds(5)),
            WaitOutcome::kSliceOver);
  EXPECT_EQ(waiting.load(), 0u);
}

}  // namespace
}  // namespace gpushared::ipc
