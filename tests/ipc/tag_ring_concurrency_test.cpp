// SPDX-License-Identifier: Apache-2.0
// Two threads on one ring, for tsan: it reports a weakened release or acquire even where the
// machine happens to forgive it.
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

// Several threads of a client wait for different streams while the worker publishes; none may
// sleep through its own.
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
        // A lost wake-up shows as a slice that ends although nothing is missing, and as a
        // test of many minutes.
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

}  // namespace
}  // namespace gpushared::ipc
