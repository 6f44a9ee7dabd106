// SPDX-License-Identifier: Apache-2.0
// Scheduling priority of threads of the broker and of workers, relative to busy threads of clients.

#ifndef GPUSHARED_SERVER_PLATFORM_THREAD_PRIORITY_H_
#define GPUSHARED_SERVER_PLATFORM_THREAD_PRIORITY_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace gpushared::server {

// Scheduling parameters that were granted to a thread.
struct ThreadPriority {
  bool is_realtime = false;  // SCHED_RR with its lowest priority.
  int nice = 0;
  // Why the thread has no higher priority; empty if it has the desired one.
  std::string why_not_more;

  // Returns "real-time", "nice -10" or "normal (nice -10 rejected: Operation not permitted)".
  std::string ToString() const;
};

// Desired niceness of threads that requests wait for.
inline constexpr int kPreferredNice = -10;
// Processor time that a real-time thread may use between two blocking calls; beyond it the kernel
// kills the process. Only a malfunctioning thread reaches this limit, see RealtimeBudget.
inline constexpr std::chrono::seconds kRealtimeMost{10};

// Gives a thread precedence over normal ones: kPreferredNice, or the closest niceness that this
// process may set. Threads and processes that the thread starts have normal priority. A `thread` of
// 0 means the calling thread.
ThreadPriority PreferThread(pid_t thread);
inline ThreadPriority PreferThisThread() { return PreferThread(0); }

// Restores normal priority. Threads that the thread starts have normal priority as well.
void MakeThreadNormal(pid_t thread);
inline void MakeThisThreadNormal() { MakeThreadNormal(0); }

// Returns the processor time used by the calling thread.
std::chrono::nanoseconds TimeOfThisThread();

// Decides whether a preferred thread that serves other users keeps its priority: only while it uses
// little processor time. A thread that those users keep busy has normal priority until the load
// ends, so that a flood of requests cannot use it to take a core from all other threads.
//
// The caller passes the time, and the processor time used by the thread. Thread-compatible.
class PreferredBudget {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  enum class Change : std::uint8_t { kNone, kNormal, kPreferred };
  static constexpr std::chrono::milliseconds kWindow{100};
  static constexpr int kPartMax = 5;  // The thread may use a fifth of a core.

  bool IsDue(TimePoint now) const { return now >= updated_ + kWindow; }
  // Must be called only when IsDue.
  Change Update(TimePoint now, std::chrono::nanoseconds used) {
    const bool is_normal = updated_ != TimePoint() && (used - used_) * kPartMax > now - updated_;
    updated_ = now;
    used_ = used;
    if (std::exchange(is_normal_, is_normal) == is_normal) return Change::kNone;
    return is_normal ? Change::kNormal : Change::kPreferred;
  }

 private:
  TimePoint updated_{};
  std::chrono::nanoseconds used_{0};
  bool is_normal_ = false;
};

// Gives the calling thread precedence over all normal ones. Falls back to PreferThisThread if
// real-time priority is rejected or the process has only one core.
ThreadPriority MakeThisThreadRealtime();

// Returns how often the calling thread has blocked.
std::uint64_t TimesThisThreadBlocked();

// Decides whether a real-time thread keeps its priority: only while it blocks from time to time. A
// thread that ran for kStint without blocking has normal priority until it blocks, so that a flood
// of commands cannot take a core from all other threads.
//
// The caller passes the time. Thread-compatible.
class RealtimeBudget {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  enum class Change : std::uint8_t { kNone, kOrdinary, kRealtime };
  // Time without blocking after which the thread is demoted. Twice this, plus a margin, is less
  // than kRealtimeMost.
  static constexpr std::chrono::milliseconds kStint{500};

  bool IsDue(TimePoint now) const { return now >= due_; }
  // Must be called only when IsDue. `blocked` is the result of TimesThisThreadBlocked.
  Change Update(TimePoint now, std::uint64_t blocked) {
    due_ = now + kStint;
    const bool is_ordinary = blocked_ == blocked;
    blocked_ = blocked;
    if (std::exchange(is_ordinary_, is_ordinary) == is_ordinary) return Change::kNone;
    return is_ordinary ? Change::kOrdinary : Change::kRealtime;
  }

 private:
  TimePoint due_{};
  std::optional<std::uint64_t> blocked_;
  bool is_ordinary_ = false;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_PLATFORM_THREAD_PRIORITY_H_
