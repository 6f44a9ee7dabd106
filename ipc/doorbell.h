// SPDX-License-Identifier: Apache-2.0
// Sleeping and waking across processes in both directions, without lost wake-ups and without a
// system call while the other side is awake.
//
// Both directions rely on the same argument. The sleeper announces itself (A), issues a full memory
// barrier, checks for work again (B), and sleeps only if there is none. The waker publishes work
// (C), issues a full memory barrier, and checks for an announced sleeper (D). If D misses the
// announcement A, then the barrier of D came before that of A, so C is visible to B and the sleeper
// finds the work. If D finds the announcement, the waker wakes the sleeper. Without both barriers,
// a store may pass a later load, so each side could read old values, and the wake-up would be lost.
//
// std::atomic::wait cannot be used, because its futexes are private to one process.

#ifndef GPUSHARED_IPC_DOORBELL_H_
#define GPUSHARED_IPC_DOORBELL_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "gpushared/result.h"

#include "ipc/unique_fd.h"
#include "ipc/wire/layout.h"

namespace gpushared::ipc {

// Sequentially consistent fence. Under tsan, which does not understand fences, a read-modify-write
// replaces the fence; it is a full barrier on every architecture that we build for. tsan can check
// the rings without the fence, because their tags use acquire and release.
inline void FullMemoryBarrier() {
#if defined(__SANITIZE_THREAD__)
  std::atomic<int> line{0};
  line.fetch_add(1, std::memory_order_seq_cst);
  asm volatile("" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

inline void SpinPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("" ::: "memory");
#endif
}

enum class FutexResult { kWokenOrChanged, kTimedOut };

// Sleeps while `word` equals `expected`, for at most `timeout`. May return early (spurious
// wake-up). Works on read-only mappings and between processes.
FutexResult FutexWait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                      std::chrono::nanoseconds timeout);
// Wakes at most `count` sleepers on `word` in any process, longest sleepers first, and returns
// their number. Returns 0 if the address is no longer mapped.
std::uint32_t FutexWake(const std::atomic<std::uint32_t>* word, std::uint32_t count);

// Creates the eventfd by which a client wakes its worker: non-blocking, close-on-exec.
Result<UniqueFd> MakeDoorbell();

// Returns the number of cores that this process may use.
unsigned UsableCores();

// Worker side of waiting for clients.
//
//   if (sleep.Announce([&] { return AnyRingHasRecord(); })) {
//     epoll_wait(...);   // On the clients' eventfds, edge-triggered: they need not be read.
//     sleep.Cancel();
//   }
//
// Each client has its own page, because a client keeps its page when it is moved to another worker,
// and every word has one writer.
//
// Confined to the worker's device thread.
class WorkerSleep {
 public:
  explicit WorkerSleep(WorkerPage& page) : pages_{&page} {}

  // Announces sleeps on this page, too, until Remove. `rung_max`: number of the last sleep that
  // another worker announced there. Its client does not ring for that number again, so later
  // sleeps get higher ones.
  void Add(WorkerPage& page, std::uint64_t rung_max) {
    sleeps_ = std::max(sleeps_, rung_max);
    page.sleeping.store(0, std::memory_order_relaxed);
    pages_.push_back(&page);
  }
  void Remove(const WorkerPage& page) { std::erase(pages_, &page); }
  // Number of the last announced sleep.
  std::uint64_t last() const { return sleeps_; }

  // Returns true if there is no work. After that, every client that publishes work writes to its
  // eventfd. Returns false, and withdraws the announcement, if `has_work` found work. The worker
  // must choose the eventfds it listens to before the call, because a client rings only once per
  // sleep.
  template <typename HasWork>
  bool Announce(HasWork has_work) {
    // Relaxed: FullMemoryBarrier orders the stores before the loads in has_work.
    Store(++sleeps_);
    FullMemoryBarrier();
    if (!has_work()) return true;
    Cancel();
    return false;
  }

  // Relaxed: a client that still reads the number of the sleep merely writes its eventfd
  // unnecessarily.
  void Cancel() { Store(0); }

 private:
  void Store(std::uint64_t sleep) {
    for (WorkerPage* const page : pages_) page->sleeping.store(sleep, std::memory_order_relaxed);
  }

  std::vector<WorkerPage*> pages_;
  std::uint64_t sleeps_ = 0;  // Announced sleeps, including those that were withdrawn.
};

// Client side of waking the worker.
//
// Thread-safe.
class ClientDoorbell {
 public:
  // `page` must outlive the doorbell; `eventfd` is borrowed.
  ClientDoorbell(const WorkerPage& page, int eventfd) : page_(page), eventfd_(eventfd) {}

  // Called after publishing one record or a batch. Returns whether this call woke the worker.
  bool Ring() {
    FullMemoryBarrier();
    // Relaxed: the barrier orders the load after the publication.
    const std::uint64_t sleep = page_.sleeping.load(std::memory_order_relaxed);
    if (sleep == 0) [[likely]]
      return false;
    // Each sleep is rung only once, however long the worker takes to wake up, so a burst of records
    // for a sleeping worker costs one system call. The worker's next sleep has another number, so
    // it is rung again.
    if (sleep == rung_.load(std::memory_order_acquire)) return false;
    Wake();
    // Release: a thread that reads this value does not write the eventfd, because that has been
    // done.
    rung_.store(sleep, std::memory_order_release);
    return true;
  }

  // Wakes the worker even if it does not sleep.
  void Wake();

 private:
  const WorkerPage& page_;
  int eventfd_;
  std::atomic<std::uint64_t> rung_{0};  // Number of the last sleep that was rung.
};

// Worker side of waking the threads of one client.
//
// Confined to the worker's device thread.
class CompletionDoorbell {
 public:
  // Maximum number of threads that one Ring wakes. There is a maximum, because each wake-up costs
  // the worker about a microsecond, and a client can have 100,000 threads asleep.
  static constexpr std::uint32_t kWakesPerRing = 4;
  // Upper limit for the client's count of waiting threads; no machine has more threads.
  static constexpr std::uint32_t kWaitersMax = std::uint32_t{1} << 22;

  struct Rung {
    bool has_woken = false;  // Whether a system call was made.
    // Upper bound of the threads still asleep. The caller lets another thread wake them.
    std::uint32_t left_asleep = 0;
  };

  CompletionDoorbell(std::atomic<std::uint32_t>& event, const std::atomic<std::uint32_t>& waiting)
      : event_(event), waiting_(waiting) {}

  // Called once after a batch of publications: timelines, completion records, credit. `waiting` is
  // written by the client; a wrong value only loses wake-ups of that client, or costs the worker
  // one system call per batch.
  Rung Ring() {
    // Release: a waiter that reads the new count also sees the publications before it. A plain
    // increment instead of a read-modify-write, because the worker is the only writer.
    event_.store(event_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    FullMemoryBarrier();
    const std::uint32_t waiting = waiting_.load(std::memory_order_relaxed);
    if (waiting == 0) [[likely]]
      return {};
    const std::uint32_t woken = FutexWake(&event_, kWakesPerRing);
    // Only threads that fell asleep before the count changed can still be asleep, because a thread
    // that announces itself later sees the new count and does not sleep.
    const bool may_be_more = woken == kWakesPerRing && waiting > woken;
    return {.has_woken = true,
            .left_asleep = may_be_more ? std::min(waiting, kWaitersMax) - woken : 0};
  }
  // Returns the word on which the client's threads sleep.
  const std::atomic<std::uint32_t>* futex() const { return &event_; }

 private:
  std::atomic<std::uint32_t>& event_;
  const std::atomic<std::uint32_t>& waiting_;
};

enum class WaitOutcome { kDone, kSliceOver };

// Client side of waiting for the worker.
//
// Thread-safe: all waiting threads of the client may share one CompletionWaiter.
class CompletionWaiter {
 public:
  CompletionWaiter(const std::atomic<std::uint32_t>& event, std::atomic<std::uint32_t>& waiting)
      : event_(event), waiting_(waiting) {}

  // Returns kDone as soon as `done()` is true, after spinning for `spin` and then sleeping. Returns
  // kSliceOver after sleeping for `slice`; the caller then checks whether the session is alive and
  // calls again. `done` is called often and reads shared words with acquire.
  template <typename Done>
  WaitOutcome Wait(Done done, std::chrono::nanoseconds spin, std::chrono::nanoseconds slice) {
    using Clock = std::chrono::steady_clock;
    if (done()) return WaitOutcome::kDone;
    if (spin.count() > 0) {
      // The clock is read only every few iterations, because reading it takes as long as SpinPause.
      const auto end = Clock::now() + spin;
      do {
        for (int i = 0; i < 16; ++i) {
          if (done()) return WaitOutcome::kDone;
          SpinPause();
        }
      } while (Clock::now() < end);
    }
    const auto end = Clock::now() + slice;
    // A count instead of a flag, because several threads of a client may wait. Relaxed:
    // FullMemoryBarrier orders the increment.
    waiting_.fetch_add(1, std::memory_order_relaxed);
    WaitOutcome outcome = WaitOutcome::kSliceOver;
    for (;;) {
      FullMemoryBarrier();
      // The count is read before done() is called: any later publication changes the count, and
      // FutexWait returns at once if the count has changed.
      const std::uint32_t seen = event_.load(std::memory_order_acquire);
      if (done()) {
        outcome = WaitOutcome::kDone;
        break;
      }
      const auto left = end - Clock::now();
      if (left.count() <= 0) break;
      if (FutexWait(event_, seen, left) == FutexResult::kTimedOut) break;
    }
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    return outcome;
  }

 private:
  const std::atomic<std::uint32_t>& event_;
  std::atomic<std::uint32_t>& waiting_;
};

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_DOORBELL_H_
