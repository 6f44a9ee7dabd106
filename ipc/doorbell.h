// SPDX-License-Identifier: Apache-2.0
// Sleeping and waking across processes, in both directions, without a lost wake-up and without
// a system call while the other side is awake.
//
// Both directions are the same argument. The sleeper announces itself (A), then a full fence,
// then looks once more for work (B), and sleeps only if there is none. The waker publishes
// work (C), then a full fence, then looks whether a sleeper is announced (D). If the waker's D
// missed the announcement A, then D's fence came before A's, so C is visible to B: the sleeper
// finds the work and does not sleep. Otherwise D saw A and the waker wakes. Without both fences
// each side may read old values (a store may pass a later load), and the wake-up is lost.
//
// std::atomic::wait cannot be used: its futexes are private to one process.

#ifndef GPUSHARED_IPC_DOORBELL_H_
#define GPUSHARED_IPC_DOORBELL_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "gpushared/result.h"

#include "ipc/unique_fd.h"
#include "ipc/wire/layout.h"

namespace gpushared::ipc {

// A sequentially consistent fence. tsan does not understand fences. It needs none to follow the
// rings, whose tags carry acquire and release. So under tsan it is a read-modify-write, a full
// fence on every machine that we build for.
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

// Sleeps while `word` equals `expected`, at most `timeout`. May return early for no reason.
// Works on read-only mappings and between processes.
FutexResult FutexWait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                      std::chrono::nanoseconds timeout);
// Wakes at most `count` sleepers on `word`, in any process, those that sleep longest first; returns
// how many. 0 for an address that is not mapped any more.
std::uint32_t FutexWake(const std::atomic<std::uint32_t>* word, std::uint32_t count);

// Eventfd by which one client wakes its worker: non-blocking, closed on exec.
Result<UniqueFd> MakeDoorbell();

// Cores this process may run on; spinning with one is never worth it.
unsigned UsableCores();

// The worker's side of waiting for clients.
//
//   if (sleep.Announce([&] { return AnyRingHasRecord(); })) {
//     epoll_wait(...);   // On the clients' eventfds, edge-triggered: they need not be read.
//     sleep.Cancel();
//   }
//
// Confined to the worker's device thread.
class WorkerSleep {
 public:
  explicit WorkerSleep(WorkerPage& page) : page_(page) {}

  // True: nothing is to be done and every client that publishes from now on writes its
  // eventfd. False: `has_work` said there is work; the announcement is withdrawn. Whose eventfds
  // the worker listens to is chosen before this: a client rings once in a sleep, and not again.
  template <typename HasWork>
  bool Announce(HasWork has_work) {
    // Relaxed: FullMemoryBarrier orders it before the loads in has_work.
    page_.sleeping.store(++sleeps_, std::memory_order_relaxed);
    FullMemoryBarrier();
    if (!has_work()) return true;
    Cancel();
    return false;
  }

  // Relaxed: a client that still sees the sleep writes an eventfd in vain, nothing else.
  void Cancel() { page_.sleeping.store(0, std::memory_order_relaxed); }

 private:
  WorkerPage& page_;
  std::uint64_t sleeps_ = 0;  // Announced, whether or not it came to sleeping.
};

// The client's side of waking the worker.
//
// Thread-safe.
class ClientDoorbell {
 public:
  // `page` outlives the doorbell, `eventfd` is borrowed.
  ClientDoorbell(const WorkerPage& page, int eventfd) : page_(page), eventfd_(eventfd) {}

  // Call after publishing one record or a batch. True when the worker had to be woken.
  bool Ring() {
    FullMemoryBarrier();
    // Relaxed: ordered after the publication by the fence.
    const std::uint64_t sleep = page_.sleeping.load(std::memory_order_relaxed);
    if (sleep == 0) [[likely]]
      return false;
    // A sleep that was rung ends, however long the worker takes to come out of it: a burst into
    // a sleeping worker is one system call. And before its next sleep, which has another
    // number, the argument above holds anew.
    if (sleep == rung_.load(std::memory_order_acquire)) return false;
    Wake();
    // Release: a thread that relies on this ring comes after the write.
    rung_.store(sleep, std::memory_order_release);
    return true;
  }

  // Wakes the worker whether it sleeps or not.
  void Wake();

 private:
  const WorkerPage& page_;
  int eventfd_;
  std::atomic<std::uint64_t> rung_{0};  // The last sleep that was rung.
};

// The worker's side of waking threads of one client.
//
// Confined to the worker's device thread.
class CompletionDoorbell {
 public:
  // Threads that one Ring wakes. A thread costs it about a microsecond, and a client can have
  // 100,000 asleep.
  static constexpr std::uint32_t kWakesPerRing = 4;
  // Waiting threads of one client that are believed; no machine has more threads.
  static constexpr std::uint32_t kWaitersMax = std::uint32_t{1} << 22;

  struct Rung {
    bool has_woken = false;  // A system call was made.
    // Threads that may still sleep. The caller has as many woken, on another thread.
    std::uint32_t left_asleep = 0;
  };

  CompletionDoorbell(std::atomic<std::uint32_t>& event, const std::atomic<std::uint32_t>& waiting)
      : event_(event), waiting_(waiting) {}

  // Call once after a batch of publications: timelines, completion records, credit. The client
  // writes `waiting`; a lie costs it wake-ups of its own or costs us one system call per batch.
  Rung Ring() {
    // Release: a waiter that reads the new count also sees what was published before it.
    // A plain increment, not a read-modify-write: the worker is the only writer.
    event_.store(event_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    FullMemoryBarrier();
    const std::uint32_t waiting = waiting_.load(std::memory_order_relaxed);
    if (waiting == 0) [[likely]]
      return {};
    const std::uint32_t woken = FutexWake(&event_, kWakesPerRing);
    // Who announces itself later sees the new count and does not sleep on the old one.
    const bool may_be_more = woken == kWakesPerRing && waiting > woken;
    return {.has_woken = true,
            .left_asleep = may_be_more ? std::min(waiting, kWaitersMax) - woken : 0};
  }
  // On which the client's threads sleep.
  const std::atomic<std::uint32_t>* futex() const { return &event_; }

 private:
  std::atomic<std::uint32_t>& event_;
  const std::atomic<std::uint32_t>& waiting_;
};

enum class WaitOutcome { kDone, kSliceOver };

// The client's side of waiting for the worker.
//
// Thread-safe: each waiting thread uses its own or shares one.
class CompletionWaiter {
 public:
  CompletionWaiter(const std::atomic<std::uint32_t>& event, std::atomic<std::uint32_t>& waiting)
      : event_(event), waiting_(waiting) {}

  // Returns kDone as soon as `done()` is true, after spinning for `spin` and then sleeping.
  // kSliceOver after `slice` of sleep: the caller looks whether the session still lives and
  // calls again. `done` is called often and reads shared words with acquire.
  template <typename Done>
  WaitOutcome Wait(Done done, std::chrono::nanoseconds spin, std::chrono::nanoseconds slice) {
    using Clock = std::chrono::steady_clock;
    if (done()) return WaitOutcome::kDone;
    if (spin.count() > 0) {
      // The clock costs as much as a pause: ask it every few rounds.
      const auto end = Clock::now() + spin;
      do {
        for (int i = 0; i < 16; ++i) {
          if (done()) return WaitOutcome::kDone;
          SpinPause();
        }
      } while (Clock::now() < end);
    }
    const auto end = Clock::now() + slice;
    // Counted, not set: several threads of a client may wait. Relaxed: FullMemoryBarrier orders it.
    waiting_.fetch_add(1, std::memory_order_relaxed);
    WaitOutcome outcome = WaitOutcome::kSliceOver;
    for (;;) {
      FullMemoryBarrier();
      // Read before done(): whatever is published after done() looked changes the count, and
      // the kernel rejects to sleep on a count that has changed.
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
