// SPDX-License-Identifier: Apache-2.0
// Two threads on one ring, for tsan, which reports a weakened release or acquire even if the
// machine happens to tolerate it.
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "ipc/doorbell.h"
#include "ipc/tag_ring.h"

namespace gpushared::ipc {
namespace {

std::byte Expected(std::uint64_t number, std::size_t at) {
  return static_cast<std::byte>(number * 31 + at);
}

TEST(TagRingConcurrency, EveryRecordArrivesOnceWholeAndInOrder) {
  constexpr std::uint64_t kRecords = 60'000;
  const auto granules = std::make_unique<std::array<Granule, 256>>();
  std::atomic<std::uint64_t> taken{0};

  std::thread producer([&] {
    TagRingWriter writer(*granules, taken);
    std::vector<std::byte> tail;
    for (std::uint64_t number = 1; number <= kRecords; ++number) {
      PlainRecord record;
      record.header.sequence = number;
      tail.resize(number % 7 == 0 ? number % 500 : 0);
      for (std::size_t i = 0; i < tail.size(); ++i) tail[i] = Expected(number, i);
      while (writer.TryWrite(record, tail) != WriteResult::kWritten) std::this_thread::yield();
    }
  });

  TagRingReader reader(*granules, taken);
  const auto copy = std::make_unique<RecordCopy>();
  for (std::uint64_t number = 1; number <= kRecords;) {
    const ReadResult result = reader.TryRead(*copy);
    if (result == ReadResult::kEmpty) {
      std::this_thread::yield();
      continue;
    }
    EXPECT_EQ(result, ReadResult::kRecord);
    EXPECT_EQ(copy->As<PlainRecord>().header.sequence, number);
    const std::size_t bytes = number % 7 == 0 ? number % 500 : 0;
    for (std::size_t i = 0; i < bytes; ++i) EXPECT_EQ(copy->tail[i], Expected(number, i));
    ++number;
    if (HasFailure()) break;
  }
  producer.join();
}

// Several threads of a client wait for different streams while the worker publishes; none may miss
// its own wake-up.
TEST(TagRingConcurrency, EveryWaitingThreadWakesForItsTimeline) {
  constexpr int kThreads = 3;
  constexpr std::uint64_t kRounds = 2'000;
  const auto completion = std::make_unique<CompletionSegment>();
  std::atomic<std::uint32_t> waiting{0};
  std::array<std::atomic<std::uint64_t>, kThreads> asked{};

  std::vector<std::thread> waiters;
  for (std::size_t t = 0; t < kThreads; ++t) {
    waiters.emplace_back([&, t] {
      CompletionWaiter waiter(completion->event, waiting);
      for (std::uint64_t round = 1; round <= kRounds; ++round) {
        asked[t].store(round, std::memory_order_release);
        const auto done = [&] {
          return completion->timeline[t].load(std::memory_order_acquire) >= round;
        };
        // A lost wake-up makes the wait expire although the timeline has advanced.
        while (waiter.Wait(done, std::chrono::nanoseconds(0), std::chrono::seconds(30)) !=
               WaitOutcome::kDone) {
          ADD_FAILURE() << "a wake-up was lost in round " << round;
        }
      }
    });
  }
  CompletionDoorbell doorbell(completion->event, waiting);
  std::array<std::uint64_t, kThreads> published{};
  for (bool all = false; !all;) {
    bool news = false;
    all = true;
    for (std::size_t t = 0; t < kThreads; ++t) {
      const std::uint64_t want = asked[t].load(std::memory_order_acquire);
      if (want > published[t]) {
        published[t] = want;
        completion->timeline[t].store(want, std::memory_order_release);
        news = true;
      }
      all = all && published[t] == kRounds;
    }
    if (news) doorbell.Ring();
    if (!news) std::this_thread::yield();
  }
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(waiting.load(), 0u);
}

// Both sides of a sleep handshake start together, repeatedly, as close as two cores can. If either
// side lacks its full memory barrier, the two sides miss each other in some of the rounds.
class Rounds {
 public:
  // Runs `ours` and `theirs` at the same time, then `judge` on their results.
  template <typename Ours, typename Theirs, typename Judge>
  static void Run(Ours ours, Theirs theirs, Judge judge) {
    std::atomic<std::uint64_t> start{0}, finished{0};
    bool their_result = false;
    std::thread other([&] {
      for (std::uint64_t round = 1; round <= kRounds; ++round) {
        AwaitAtLeast(start, round);
        their_result = theirs();
        finished.store(round, std::memory_order_release);
      }
    });
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      start.store(round, std::memory_order_release);
      // The other side notices the start 50 to 500 ns later, so the delay sweeps that range.
      for (std::uint64_t i = 0; i < round * 61 % 2003; ++i) asm volatile("");
      const bool our_result = ours();
      AwaitAtLeast(finished, round);
      judge(our_result, their_result);
    }
    other.join();
  }

 private:
#if defined(__SANITIZE_THREAD__)
  // tsan serialises too much to expose a missing barrier, and is slow.
  static constexpr std::uint64_t kRounds = 3'000;
#else
  static constexpr std::uint64_t kRounds = 100'000;
#endif

  static void AwaitAtLeast(const std::atomic<std::uint64_t>& word, std::uint64_t value) {
    for (unsigned turns = 0; word.load(std::memory_order_acquire) < value;) {
      if (++turns % 4096 == 0) std::this_thread::yield();  // With one core, let the other run.
    }
  }
};

TEST(SleepHandshake, WorkerSeesTheRecordOrTheClientSeesTheSleeper) {
  const auto granules = std::make_unique<std::array<Granule, 256>>();
  const auto page = std::make_unique<WorkerPage>();
  std::atomic<std::uint64_t> taken{0};
  TagRingWriter writer(*granules, taken);
  TagRingReader reader(*granules, taken);
  WorkerSleep sleep(*page);
  const UniqueFd eventfd = std::move(*MakeDoorbell());
  ClientDoorbell doorbell(*page, eventfd.get());
  const auto copy = std::make_unique<RecordCopy>();
  std::uint64_t lost = 0;
  Rounds::Run(
      [&] {
        (void)writer.TryWrite(PlainRecord());
        return doorbell.Ring();
      },
      [&] { return sleep.Announce([&] { return reader.HasRecord(); }); },
      [&](bool rang, bool went_to_sleep) {
        lost += went_to_sleep && !rang ? 1 : 0;
        sleep.Cancel();
        while (reader.TryRead(*copy) == ReadResult::kRecord) {
        }
      });
  EXPECT_EQ(lost, 0u) << "rounds in which the worker slept on a record and nobody rang";
}

TEST(SleepHandshake, ClientSeesTheTimelineOrTheWorkerSeesTheWaiter) {
  const auto completion = std::make_unique<CompletionSegment>();
  alignas(kWriterSeparationBytes) std::atomic<std::uint32_t> waiting{0};
  CompletionDoorbell doorbell(completion->event, waiting);
  CompletionWaiter waiter(completion->event, waiting);
  std::atomic<std::uint64_t> rung{0};
  std::uint64_t published = 0, asked = 0;
  std::uint64_t lost = 0;
  Rounds::Run(
      [&] {
        completion->timeline[0].store(++published, std::memory_order_release);
        const bool woke = doorbell.Ring().has_woken;
        rung.store(published, std::memory_order_release);
        return woke;
      },
      [&] {
        ++asked;
        int looks = 0;
        const auto done = [&] {
          const bool seen = completion->timeline[0].load(std::memory_order_acquire) >= asked;
          // This is the last check before sleeping. The waiter remains announced until the doorbell
          // has been rung.
          if (++looks == 2) {
            for (unsigned turns = 0; rung.load(std::memory_order_acquire) < asked;) {
              if (++turns % 4096 == 0) std::this_thread::yield();
            }
          }
          return seen;
        };
        // With a slice of 0, kSliceOver means that the waiter would have slept.
        return waiter.Wait(done, std::chrono::nanoseconds(0), std::chrono::nanoseconds(0)) ==
               WaitOutcome::kSliceOver;
      },
      [&](bool woke, bool went_to_sleep) { lost += went_to_sleep && !woke ? 1 : 0; });
  EXPECT_EQ(lost, 0u) << "rounds in which a thread slept on a finished command and nobody woke it";
}

}  // namespace
}  // namespace gpushared::ipc
