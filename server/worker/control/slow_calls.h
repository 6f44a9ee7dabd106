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

// A driver can hold up launches while it loads, maps or registers something, or wait for what
// runs, on whatever thread it is asked to.
struct SlowCallRules {
  // A call that is not urgent begins when no urgent request has been open for `quiet`. That is
  // longer than the pauses within a request, and between requests of a client in a loop.
  std::chrono::nanoseconds quiet = std::chrono::microseconds(200);
  // After a slow call of duration T delayed an urgent request, the next one waits this factor · T.
  // So one request in a hundred meets a slow call, as the 99th percentile bears.
  int pause_factor = 100;
  // This long after it was posted, a call takes turns with urgent ones in any case. A further step
  // does so pause_factor times its last step's duration after that one, if that is sooner: beside
  // requests that never pause, a call with many steps takes a hundredth of the time.
  std::chrono::nanoseconds held_max = std::chrono::milliseconds(100);
  // New clients wait for one short call, and are not held for longer. A client is one until its
  // welcome and in so many short calls after it: memory, a module and staging buffers, to begin its
  // work.
  std::chrono::nanoseconds new_client_held_max = std::chrono::milliseconds(20);
  std::uint32_t new_client_calls = 4;
};

// Calls that may take milliseconds, one at a time, on a thread of their own. Urgent ones go first,
// then welcomes, then further calls of new clients. The others keep out of the way of them and of
// urgent requests for a while, see SlowCallRules. A call that would take long is made in steps:
// between two of them others have their turn, but for later ones of its session.
//
// Thread-safe.
class SlowCalls {
 public:
  using Clock = std::chrono::steady_clock;
  // Whose calls: they begin in the order in which they were posted.
  struct Caller {
    std::uint64_t session = 0;  // 0: the worker.
    // The same in all calls of a session, but for moves of its memory: see SetUrgent, HurrySwap.
    bool is_urgent = false;
    bool is_move = false;  // It moves memory of the session, for whoever waits for that.
    // Its memory goes back. Urgent calls of those that are here go first.
    bool has_left = false;
    // Of a call without steps: its client waits for its welcome. So a flood of new clients' further
    // calls, which are longer, does not keep others from being let in.
    bool awaits_welcome = false;
    bool is_new_client = false;  // The same of one of its client's first short calls.
    // It may hold up what runs. One that does not begins beside urgent requests, in its turn.
    bool disturbs = true;
  };

  // `on_thread`: called first on the thread that makes the calls.
  explicit SlowCalls(const SlowCallRules& rules = {}, std::function<void()> on_thread = {});
  const SlowCallRules& rules() const { return rules_; }
  ~SlowCalls();  // Finishes.
  SlowCalls(const SlowCalls&) = delete;
  SlowCalls& operator=(const SlowCalls&) = delete;

  // `call` is destroyed on the thread, too. Not made after Finish. One that returns a bool is
  // called again while that is true: there are further steps.
  template <typename Call>
  void Post(const Caller& caller, Call call) {
    // A std::function must be copyable.
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
  // Also of the calls that wait.
  void SetUrgent(std::uint64_t session, bool is_urgent);
  // The move of the session's memory that waits or is made is urgent, with its further steps.
  void HurrySwap(std::uint64_t session);
  // Until a call that is not urgent and came now might begin, for threads that make their own.
  void AwaitQuiet();
  // Whether an urgent request is open from now on. Of one thread; never waits and wakes nobody:
  // who is held looks again by himself.
  void RecordUrgentRequests(bool are_open);
  // Makes all calls that were posted, without holding any back, and ends the thread. Idempotent;
  // of one thread.
  void Finish();

 private:
  struct Waiting {
    Caller caller;
    Clock::time_point posted;  // Or when its last step ended.
    std::function<bool()> call;
    bool has_begun = false;                // Further steps are to come.
    std::chrono::nanoseconds step_took{};  // The last one.
  };

  void Add(Waiting waiting);
  void Run();
  // Who is next, of those that wait: the oldest of the most urgent ones. Every second call is the
  // oldest of all once that is due.
  std::deque<Waiting>::iterator Choose() GPUSHARED_REQUIRES(mutex_);
  std::deque<Waiting>::iterator Oldest() GPUSHARED_REQUIRES(mutex_);  // Among those not blocked.
  bool IsBlocked(const Waiting& waiting) const GPUSHARED_REQUIRES(mutex_);
  // When it begins at the latest.
  Clock::time_point GetLatest(const Waiting& waiting) const;
  // From when on it takes turns with those that go before it.
  Clock::time_point GetDue(const Waiting& waiting) const;
  std::optional<Waiting> Next();  // Empty at the end.
  void PauseIfMet(Clock::time_point began);
  // Whether what is held until `latest` may begin; waits for a while where it may not.
  bool MayBegin(MutexLock& lock, Clock::time_point latest) GPUSHARED_REQUIRES(mutex_);

  const SlowCallRules rules_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_ GPUSHARED_GUARDED_BY(mutex_);
  std::uint64_t moving_ GPUSHARED_GUARDED_BY(mutex_) = 0;  // Whose move is made; 0: another call.
  bool is_hurried_ GPUSHARED_GUARDED_BY(mutex_) = false;   // The move that is made.
  bool is_finishing_ GPUSHARED_GUARDED_BY(mutex_) = false;
  bool oldest_was_passed_ GPUSHARED_GUARDED_BY(mutex_) = false;
  Clock::time_point pause_until_ GPUSHARED_GUARDED_BY(mutex_);
  // Since when no urgent request has been open; kNever while one is.
  static constexpr Clock::rep kNever = Clock::duration::max().count();
  // Relaxed: nothing else is read because of it.
  std::atomic<Clock::rep> quiet_since_{Clock::duration::min().count()};
  std::thread thread_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_SLOW_CALLS_H_
