// SPDX-License-Identifier: Apache-2.0
// Calls of the driver that wait for the GPU with the context's lock, and the work on the GPU: who
// goes first.

#ifndef GPUSHARED_SERVER_DEVICE_CUDA_QUIET_MOMENTS_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_QUIET_MOMENTS_H_

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

// Who waits for a call that needs a quiet moment.
enum class Urgency : std::uint8_t {
  kHigh,       // A launch of the high class.
  kAwaited,    // Another launch, or a client.
  kUnhurried,  // Nobody: it waits for a moment without urgent requests first.
};

// Moments in which the driver has no work. Loads, unmaps and the like may wait for all that runs,
// and keep every other call on the context waiting meanwhile: the stop of a kernel, the end of an
// endless one, launches of the high class. So such a call is made in a quiet moment: the device
// thread gives the driver nothing more and preempts what it can (Drain); when nothing is left, all
// calls that wait are made; then the work goes on. Work that cannot be preempted is waited for
// here, where it keeps nobody else waiting.
//
// Work loses at most a fifth of the time to this, and half of it to calls of the high class: a
// drain and its moment of duration T are followed by 4 T, or 1 T, without a drain, but by no more
// than kPauseMax. A moment in which no work was held back costs nothing and counts for nothing.
//
// Thread-safe; the second part is the device thread's.
class QuietMoments {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

  // `wake` makes the device thread look at its work again; `await_unhurried` is called ahead of
  // calls that nobody waits for. Both may be empty.
  QuietMoments(std::function<void()> wake, std::function<void()> await_unhurried)
      : wake_(std::move(wake)), await_unhurried_(std::move(await_unhurried)) {}
  QuietMoments(const QuietMoments&) = delete;
  QuietMoments& operator=(const QuietMoments&) = delete;

  // Further calls begin within a moment until it has been this long: a load takes some ten µs.
  static constexpr std::chrono::nanoseconds kMomentMax = std::chrono::milliseconds(1);
  static constexpr int kPauseFactor = 4, kPauseFactorHigh = 1;
  static constexpr std::chrono::nanoseconds kPauseMax = std::chrono::seconds(1);

  // Nobody waits any more: the context is dead, or its device goes.
  void GiveUp();
  // Time of moments in which work was held back.
  std::chrono::nanoseconds held_back() const {
    return std::chrono::nanoseconds(held_back_ns_.load(std::memory_order_relaxed));
  }

  // ---- the device thread's

  // What gets no further work to the driver while the device drains.
  enum class Hold : std::uint8_t { kNothing, kAllButHigh, kAll };
  void SetHold(Hold hold) { hold_ = hold; }
  // Whether work may be given to the driver; it counts as having some then.
  bool MayIssue(bool is_high) {
    if (hold_ != Hold::kNothing && (hold_ == Hold::kAll || !is_high)) [[unlikely]]
      return false;
    return has_work_ || TryBeginWork();
  }
  bool has_work() const { return has_work_; }
  // Whether a call waits whose time has come.
  bool IsWanted() const {
    const Clock::rep at = wanted_at_.load(std::memory_order_relaxed);
    return at != kNever && at <= Clock::now().time_since_epoch().count();
  }
  // The driver has no more work. `drained_since`: the device was drained for it, or calls are made
  // only if their time has come.
  void EndWork(std::optional<TimePoint> drained_since = {});
  // A drain did not come to its end.
  void RecordVainDrain(TimePoint began, TimePoint ended);

 private:
  friend class QuietMoment;
  struct Waiter {
    Urgency urgency = Urgency::kAwaited;
    bool is_in = false;
  };
  static constexpr Clock::rep kNever = Clock::duration::max().count();

  void Ask(Waiter& waiter);
  bool HasCome(Waiter& waiter);
  void Await(Waiter& waiter);
  void Leave(Waiter& waiter);
  // Whether the moment is not too old for a further call.
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
  bool is_working_ GPUSHARED_GUARDED_BY(mutex_) = false;  // As has_work_.
  bool is_over_ GPUSHARED_GUARDED_BY(mutex_) = false;
  std::thread::id device_thread_ GPUSHARED_GUARDED_BY(mutex_);
  // Of the moment that is now.
  TimePoint opened_at_ GPUSHARED_GUARDED_BY(mutex_);
  std::optional<TimePoint> held_since_ GPUSHARED_GUARDED_BY(mutex_);  // Work has been held back.
  // Of the last one that held work back.
  TimePoint last_end_ GPUSHARED_GUARDED_BY(mutex_);
  std::chrono::nanoseconds last_took_ GPUSHARED_GUARDED_BY(mutex_){};
  // These are relaxed: who acts on them takes the mutex.
  std::atomic<Clock::rep> wanted_at_{kNever};
  std::atomic<std::int64_t> held_back_ns_{0};
  // The device thread's.
  Hold hold_ = Hold::kNothing;
  bool has_work_ = false;
};

// A quiet moment, from the end of its wait to its own. Within another one of its thread, and on the
// device thread, which would wait for itself, it is there at once.
//
// Confined to one thread.
class [[nodiscard]] QuietMoment {
 public:
  enum class Wait : std::uint8_t { kNow, kLater };
  // kLater: Await, or HasCome again and again, has to follow.
  QuietMoment(QuietMoments& moments, Urgency urgency, Wait wait = Wait::kNow);
  ~QuietMoment();
  QuietMoment(const QuietMoment&) = delete;
  QuietMoment& operator=(const QuietMoment&) = delete;

  void Await();
  bool HasCome();
  // Whether one more short call may follow.
  bool IsYoung() const { return moments_.IsYoung(); }

 private:
  QuietMoments& moments_;
  QuietMoments::Waiter waiter_;
  bool is_nested_ = false;
  bool is_inside_ = false;
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_QUIET_MOMENTS_H_
