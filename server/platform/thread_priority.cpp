// SPDX-License-Identifier: Apache-2.0
#include "server/platform/thread_priority.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace gpushared::server {

namespace {

// Kernel structure that the C library does not declare.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = SCHED_OTHER;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0, deadline = 0, period = 0;
};
constexpr std::uint64_t kResetOnFork = 1;
constexpr unsigned kLeastRealtime = 1;
constexpr int kRlimitOfNiceZero = 20;  // RLIMIT_NICE is 20 minus the lowest niceness.

// Returns 0 or the error number.
int SetThread(pid_t thread, const SchedulingAttributes& attributes) {
  return ::syscall(SYS_sched_setattr, thread, &attributes, 0) == 0 ? 0 : errno;
}

std::string Rejected(const std::string& what, int error) {
  return what + " rejected: " + std::generic_category().message(error);
}

int CoresHere() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

// Returns the lowest niceness that an unprivileged process may set.
int NiceAllowed() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NICE, &limit) != 0) return 0;
  const auto most = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 40));
  return kRlimitOfNiceZero - most;
}

}  // namespace

std::string ThreadPriority::ToString() const {
  const std::string has = is_realtime ? "real-time"
                          : nice != 0 ? "nice " + std::to_string(nice)
                                      : std::string("normal");
  return why_not_more.empty() ? has : has + " (" + why_not_more + ")";
}

ThreadPriority PreferThread(pid_t thread) {
  ThreadPriority got;
  const int wished = SetThread(thread, {.flags = kResetOnFork, .nice = kPreferredNice});
  if (wished == 0) {
    got.nice = kPreferredNice;
    return got;
  }
  got.why_not_more = Rejected("nice " + std::to_string(kPreferredNice), wished);
  const int allowed = std::max(NiceAllowed(), kPreferredNice);
  if (allowed < 0 && SetThread(thread, {.flags = kResetOnFork, .nice = allowed}) == 0) {
    got.nice = allowed;
  }
  return got;
}

void MakeThreadNormal(pid_t thread) { (void)SetThread(thread, {.flags = kResetOnFork}); }

std::chrono::nanoseconds TimeOfThisThread() {
  timespec used{};
  if (::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) != 0) return {};
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

ThreadPriority MakeThisThreadRealtime() {
  const auto instead = [](const std::string& why) {
    ThreadPriority got = PreferThisThread();
    got.why_not_more = why + (got.why_not_more.empty() ? "" : ", " + got.why_not_more);
    return got;
  };
  if (CoresHere() < 2) return instead("real-time not requested: the machine has a single core");
  // Keeps a hard limit that is already lower.
  rlimit limit{};
  constexpr auto kMost = static_cast<rlim_t>(std::chrono::microseconds(kRealtimeMost).count());
  if (::getrlimit(RLIMIT_RTTIME, &limit) == 0) {
    limit.rlim_max = std::min(limit.rlim_max, kMost);
    limit.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_RTTIME, &limit) != 0) {
      return instead(Rejected("the bound of real-time", errno));
    }
  }
  const int error =
      SetThread(0, {.policy = SCHED_RR, .flags = kResetOnFork, .priority = kLeastRealtime});
  if (error != 0) return instead(Rejected("real-time", error));
  return {.is_realtime = true, .nice = 0, .why_not_more = {}};
}

std::uint64_t TimesThisThreadBlocked() {
  rusage used{};
  if (::getrusage(RUSAGE_THREAD, &used) != 0) return 0;
  return static_cast<std::uint64_t>(used.ru_nvcsw);
}

}  // namespace gpushared::server
