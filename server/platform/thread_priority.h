// SPDX-License-Identifier: Apache-2.0
// What threads of a worker get of the machine's cores, beside busy threads of its clients.

#ifndef GPUSHARED_SERVER_PLATFORM_THREAD_PRIORITY_H_
#define GPUSHARED_SERVER_PLATFORM_THREAD_PRIORITY_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace gpushared::server {

// A thread's standing with the machine's scheduler.
struct ThreadPriority {
  bool is_realtime = false;  // SCHED_RR, the lowest priority of it.
  int nice = 0;
  std::string why_not_more;  // Empty when it has what was wished.

  // "real-time", "nice -10", "normal (nice -10 rejected: Operation not permitted)".
  std::string ToString() const;
};

// Niceness that is wished for threads on which requests wait.
inline constexpr int kPreferredNice = -10;
// Processor time that a real-time thread may use without once waiting; the kernel then ends the
// process. Only a thread that has lost its way gets there: see RealtimeBudget.
inline constexpr std::chrono::seconds kRealtimeMost{10};

// Puts a thread ahead of normal ones: kPreferredNice, or as near as this process may. Threads and
// processes that it starts are normal. 0: the calling thread.
ThreadPriority PreferThread(pid_t thread);
inline ThreadPriority PreferThisThread() { return PreferThread(0); }

// Makes it a normal thread again. Those that it starts are normal, too.
void MakeThreadNormal(pid_t thread);
inline void MakeThisThreadNormal() { MakeThreadNormal(0); }

// Processor time that the calling thread has used.
std::chrono::nanoseconds TimeOfThisThread();

// When a preferred thread that serves strangers is to be one: while it takes little of a core. One
// that they keep busy is a normal thread until they stop. So no flood takes a core from everybody
// else by it.
//
// Told the time, and the processor time that the thread has used. Thread-compatible.
class PreferredBudget {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  enum class Change : std::uint8_t { kNone, kNormal, kPreferred };
  static constexpr std::chrono::milliseconds kWindow{100};
  static constexpr int kPartMax = 5;  // A fifth of a core.

  bool IsDue(TimePoint now) const { return now >= looked_ + kWindow; }
  // Once it is due.
  Change Look(TimePoint now, std::chrono::nanoseconds used) {
    const bool is_normal = looked_ != TimePoint() && (used - used_) * kPartMax > now - looked_;
    looked_ = now;
    used_ = used;
    if (std::exchange(is_normal_, is_normal) == is_normal) return Change::kNone;
    return is_normal ? Change::kNormal : Change::kPreferred;
  }

 private:
  TimePoint looked_{};
  std::chrono::nanoseconds used_{0};
  bool is_normal_ = false;
};

// Puts the calling thread ahead of all normal ones. Where that is rejected, or the machine has one
// core for everybody: as PreferThisThread.
ThreadPriority MakeThisThreadRealtime();

// How often the calling thread has waited for something.
std::uint64_t TimesThisThreadBlocked();

// When a real-time thread is to be one: while it waits for something now and then. A thread that
// ran for kStint without a wait is an ordinary thread until it waits. So no flood of commands takes
// a core from everybody else.
//
// Told the time. Thread-compatible.
class RealtimeBudget {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  enum class Change : std::uint8_t { kNone, kOrdinary, kRealtime };
  // Twice that, and a margin, is below kRealtimeMost.
  static constexpr std::chrono::milliseconds kStint{500};

  bool IsDue(TimePoint now) const { return now >= due_; }
  // Once it is due; `blocked`: as TimesThisThreadBlocked says it.
  Change Look(TimePoint now, std::uint64_t blocked) {
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
