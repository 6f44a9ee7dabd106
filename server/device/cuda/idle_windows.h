// SPDX-License-Identifier: Apache-2.0
// Arbitrates between work on the GPU and driver calls that wait for the GPU while they hold the
// context's lock.

#ifndef GPUSHARED_SERVER_DEVICE_CUDA_IDLE_WINDOWS_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_IDLE_WINDOWS_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <thread>

#include "gpushared/mutex.h"

namespace gpushared::device::cuda {

// Priority of a call that needs an idle window, according to its waiter.
enum class Urgency : std::uint8_t {
  kHigh,       // A launch of the high class waits.
  kAwaited,    // Another launch, or a client, waits.
  kUnhurried,  // Nothing waits: the call is delayed until there are no urgent requests.
};

// Windows in which the driver has no work. Calls such as loads and unmaps may wait for everything
// that runs, and during that time block every other call on the context, such as calls that stop or
// end a kernel or launch work of the high class. Such a call is therefore made in an idle window:
// the device thread stops issuing work and preempts what it can (Drain); when nothing is in flight,
// all waiting calls are made; then work continues. Work that cannot be preempted is awaited here,
// where the wait does not block other threads.
//
// Work loses at most a fifth of the time to idle windows, and at most half of the time to those of
// the high class: after a drain and its window of duration T, no drain starts for 4 T (T for the
// high class). Because this pause is at most kPauseMax, work loses more to windows of more than
// 250 ms. A window that delayed no work is free and does not count.
//
// Thread-safe; the second part is confined to the device thread.
class IdleWindows {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

  // `wake` makes the device thread check its work again; `await_unhurried` is called before calls
  // that have no waiter. Both may be empty.
  IdleWindows(std::function<void()> wake, std::function<void()> await_unhurried)
      : wake_(std::move(wake)), await_unhurried_(std::move(await_unhurried)) {}
  IdleWindows(const IdleWindows&) = delete;
  IdleWindows& operator=(const IdleWindows&) = delete;

  // Further calls are started in a window that has been open for less than this. A load takes tens
  // of µs.
  static constexpr std::chrono::nanoseconds kWindowMax = std::chrono::milliseconds(1);
  static constexpr int kPauseFactor = 4, kPauseFactorHigh = 1;
  static constexpr std::chrono::nanoseconds kPauseMax = std::chrono::seconds(1);

  // Releases all waiters, because the context is dead or the device is being destroyed.
  void GiveUp();
  // Total time of windows that delayed work.
  std::chrono::nanoseconds held_back() const {
    return std::chrono::nanoseconds(held_back_ns_.load(std::memory_order_relaxed));
  }

  // ---- device thread only

  // Work that is not issued while the device drains.
  enum class Hold : std::uint8_t { kNothing, kAllButHigh, kAll };
  void SetHold(Hold hold) { hold_ = hold; }
  // Whether work may be issued; if so, the driver is considered busy.
  bool MayIssue(bool is_high) {
    if (hold_ != Hold::kNothing && (hold_ == Hold::kAll || !is_high)) [[unlikely]]
      return false;
    return has_work_ || TryBeginWork();
  }
  bool has_work() const { return has_work_; }
  // Whether a waiting call is due.
  bool IsWanted() const {
    const Clock::rep at = wanted_at_.load(std::memory_order_relaxed);
    return at != kNever && at <= Clock::now().time_since_epoch().count();
  }
  // Reports that the driver is idle. `drained_since`: set if the device was drained for this; if
  // not, calls are made only if one of them is due.
  void EndWork(std::optional<TimePoint> drained_since = {});
  // Records that a drain was abandoned.
  void RecordAbandonedDrain(TimePoint began, TimePoint ended);

 private:
  friend class IdleWindow;
  struct Waiter {
    Urgency urgency = Urgency::kAwaited;
    bool is_in = false;
  };
  static constexpr Clock::rep kNever = Clock::duration::max().count();

  void Ask(Waiter& waiter);
  bool HasBegun(Waiter& waiter);
  void Await(Waiter& waiter);
  void Leave(Waiter& waiter);
  // Whether the window has been open for less than kWindowMax, so that a further call may start.
  bool IsYoung() const;
  bool TryBeginWork();
  bool TryEnter(Waiter& waiter) GPUSHARED_REQUIRES(mutex_);
  void AdmitAll(TimePoint now) GPUSHARED_REQUIRES(mutex_);
  TimePoint DueAt(Urgency urgency) const GPUSHARED_REQUIRES(mutex_);
  void RecordWanted() GPUSHARED_REQUIRES(mutex_);

  const std::function<void()> wake_;
  const std::function<void()> await_unhurried_;
  mutable Mutex mutex_;
  std::condition_variable changed_;
  std::list<Waiter*> waiting_ GPUSHARED_GUARDED_BY(mutex_);
  std::size_t inside_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  bool is_working_ GPUSHARED_GUARDED_BY(mutex_) = false;  // Copy of has_work_ for other threads.
  bool is_over_ GPUSHARED_GUARDED_BY(mutex_) = false;
  std::thread::id device_thread_ GPUSHARED_GUARDED_BY(mutex_);
  // Start of the current window.
  TimePoint opened_at_ GPUSHARED_GUARDED_BY(mutex_);
  // Since when the window, or the drain for it, has delayed work; empty if no work is delayed.
  std::optional<TimePoint> held_since_ GPUSHARED_GUARDED_BY(mutex_);
  // End and duration of the last window that delayed work, or of the last abandoned drain.
  TimePoint last_end_ GPUSHARED_GUARDED_BY(mutex_);
  std::chrono::nanoseconds last_took_ GPUSHARED_GUARDED_BY(mutex_){};
  // Relaxed, because threads that act on them acquire the mutex.
  std::atomic<Clock::rep> wanted_at_{kNever};
  std::atomic<std::int64_t> held_back_ns_{0};
  // Device thread only.
  Hold hold_ = Hold::kNothing;
  bool has_work_ = false;
};

// An idle window, from the end of its wait until its destruction. It begins immediately within
// another idle window of the same thread, and on the device thread, which would otherwise wait for
// itself.
//
// Confined to one thread.
class [[nodiscard]] IdleWindow {
 public:
  enum class Wait : std::uint8_t { kNow, kLater };
  // kLater: must be followed by Await, or by HasBegun until it returns true.
  IdleWindow(IdleWindows& windows, Urgency urgency, Wait wait = Wait::kNow);
  ~IdleWindow();
  IdleWindow(const IdleWindow&) = delete;
  IdleWindow& operator=(const IdleWindow&) = delete;

  void Await();
  bool HasBegun();
  // Whether one more short call may follow.
  bool IsYoung() const { return idle_windows_.IsYoung(); }

 private:
  IdleWindows& idle_windows_;
  IdleWindows::Waiter waiter_;
  bool is_nested_ = false;
  bool is_inside_ = false;
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_IDLE_WINDOWS_H_
