// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_SLOW_CALLS_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_SLOW_CALLS_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "gpushared/mutex.h"

namespace gpushared::server {

// Timing rules for slow calls. They are needed because a driver may delay launches while it loads,
// maps or registers something, or wait for running work, no matter which thread makes the call.
struct SlowCallRules {
  // A non-urgent call begins only if the last open urgent request ended at least `quiet` ago. This
  // time exceeds the pauses within a request, and those between the requests of a client that sends
  // them in a loop.
  std::chrono::nanoseconds quiet = std::chrono::microseconds(200);
  // After a slow call of duration T has delayed an urgent request, the next slow call waits for
  // pause_factor · T. As a result slow calls delay at most one request in a hundred, and hence not
  // the 99th percentile.
  int pause_factor = 100;
  // Maximum time for which a call waits for a pause between urgent requests, and after which it
  // alternates with calls of higher precedence. A further step waits for such a pause for at most
  // pause_factor times the duration of the previous step, so that a call with many short steps gets
  // a hundredth of the time even if urgent requests never pause.
  std::chrono::nanoseconds held_max = std::chrono::milliseconds(100);
  // Limits for the calls of new clients, which are preferred so that a handshake waits for at most
  // one short call. A client is considered new until its handshake is complete and for
  // `new_client_calls` short calls after it, which suffice for the memory, module and staging
  // buffers with which it begins its work.
  std::chrono::nanoseconds new_client_held_max = std::chrono::milliseconds(20);
  std::uint32_t new_client_calls = 4;
};

// Makes calls that may take milliseconds, one at a time, on a dedicated thread. Urgent calls go
// first, then handshakes, then further calls of new clients. The other calls avoid these and urgent
// requests for a limited time, see SlowCallRules. A long call is made in steps, between which other
// sessions' calls are made, but not later calls of the same session.
//
// Thread-safe.
class SlowCalls {
 public:
  using Clock = std::chrono::steady_clock;
  // Originator of a call. Calls of one session with the same precedence begin in the order in which
  // they were posted.
  struct Caller {
    std::uint64_t session = 0;  // 0: the worker.
    // Whether the session is urgent; see SetUrgent. Parking is always urgent, and a swap may have
    // another value than its session; see HurrySwap.
    bool is_urgent = false;
    // Swaps memory of the session on behalf of the client that waits for the swap.
    bool is_swap = false;
    // Frees the memory of a session that has ended. Urgent calls of connected clients go first.
    bool has_left = false;
    // A call without steps, made during the handshake. It precedes the calls that new clients make
    // after their handshakes, because a flood of those longer calls would delay handshakes.
    bool awaits_welcome = false;
    bool is_new_client = false;  // One of the first short calls of a new client.
    // The call may delay running work. A call that cannot delay any begins in its turn even while
    // urgent requests are open.
    bool disturbs = true;
  };

  // `on_thread` is called first on the thread that makes the calls.
  explicit SlowCalls(const SlowCallRules& rules = {}, std::function<void()> on_thread = {});
  const SlowCallRules& rules() const { return rules_; }
  ~SlowCalls();  // Calls Finish.
  SlowCalls(const SlowCalls&) = delete;
  SlowCalls& operator=(const SlowCalls&) = delete;

  // Posts a call, which is destroyed on the thread as well. The call is not made if Finish was
  // called before. A call that returns a bool makes one step, and is made again as long as it
  // returns true.
  template <typename Call>
  void Post(const Caller& caller, Call call) {
    // Shared, because a std::function must be copyable.
    auto shared = std::make_shared<Call>(std::move(call));
    Add({caller, Clock::now(), [shared = std::move(shared)]() -> bool {
           if constexpr (std::is_same_v<std::invoke_result_t<Call&>, bool>) {
             return (*shared)();
           } else {
             (*shared)();
             return false;
           }
         }});
  }
  // Changes whether the session's calls are urgent, including those that are already waiting.
  void SetUrgent(std::uint64_t session, bool is_urgent);
  // Makes the waiting or running swap of the session's memory urgent, including its further steps.
  void HurrySwap(std::uint64_t session);
  // Blocks until a non-urgent call posted now could begin. For threads that make such calls
  // themselves.
  void AwaitQuiet();
  // Reports whether any urgent request is open. Called by a single thread. Never blocks and wakes
  // no thread; a delayed call checks again periodically.
  void RecordUrgentRequests(bool are_open);
  // Makes all posted calls without delaying any, and ends the thread. Idempotent; called by a
  // single thread.
  void Finish();

 private:
  struct Waiting {
    Caller caller;
    Clock::time_point posted;  // When the call was posted, or when its last step ended.
    std::function<bool()> call;
    bool has_begun = false;                // A step was made, and further ones remain.
    std::chrono::nanoseconds step_took{};  // Duration of the last step.
  };

  void Add(Waiting waiting);
  void Run();
  // Returns the next call among those waiting: the oldest of the most urgent ones. If the oldest
  // call of all is due, it is chosen every second time.
  std::deque<Waiting>::iterator Choose() GPUSHARED_REQUIRES(mutex_);
  // Oldest call that is not blocked.
  std::deque<Waiting>::iterator Oldest() GPUSHARED_REQUIRES(mutex_);
  bool IsBlocked(const Waiting& waiting) const GPUSHARED_REQUIRES(mutex_);
  // Time by which the call begins at the latest.
  Clock::time_point GetLatest(const Waiting& waiting) const;
  // Time from which the call alternates with calls of higher precedence.
  Clock::time_point GetDue(const Waiting& waiting) const;
  std::optional<Waiting> Next();  // Empty when finished.
  void PauseIfMet(Clock::time_point began);
  // Returns whether a call that may be delayed until `latest` may begin now. Waits for a while
  // before it returns false.
  bool MayBegin(MutexLock& lock, Clock::time_point latest) GPUSHARED_REQUIRES(mutex_);

  const SlowCallRules rules_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_ GPUSHARED_GUARDED_BY(mutex_);
  // Session whose swap is being made; 0 while no call or another kind of call is made.
  std::uint64_t swapping_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  bool is_hurried_ GPUSHARED_GUARDED_BY(mutex_) = false;  // The current swap was made urgent.
  bool is_finishing_ GPUSHARED_GUARDED_BY(mutex_) = false;
  bool oldest_was_passed_ GPUSHARED_GUARDED_BY(mutex_) = false;
  Clock::time_point pause_until_ GPUSHARED_GUARDED_BY(mutex_);
  static constexpr Clock::rep kNever = Clock::duration::max().count();
  // Time since which no urgent request has been open; kNever while one is. Accesses are relaxed,
  // because no other data depends on it.
  std::atomic<Clock::rep> quiet_since_{Clock::duration::min().count()};
  std::thread thread_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_SLOW_CALLS_H_
