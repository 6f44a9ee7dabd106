// SPDX-License-Identifier: Apache-2.0
#include "tests/support/virtual_time/virtual_time.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>

namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kSecond = 1'000'000'000;

// Initialised statically, because the clock is read before constructors run.
std::atomic<bool> g_is_on{false};
std::atomic<std::uint64_t> g_now{0};
virtual_time_world g_world = nullptr;
void* g_context = nullptr;
thread_local bool t_is_here = false;
thread_local bool t_is_in_world = false;

std::uint64_t RealNow() {
  timespec time{};
  ::syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * kSecond +
         static_cast<std::uint64_t>(time.tv_nsec);
}

// Returns the time of the next spontaneous event.
std::uint64_t CheckWorld() {
  if (g_world == nullptr || t_is_in_world) return kNever;
  t_is_in_world = true;
  const std::uint64_t next = g_world(virtual_time_now(), g_context);
  t_is_in_world = false;
  return next;
}

struct Beginning {
  Beginning() {
    if (std::getenv("VIRTUAL_TIME") != nullptr) virtual_time_begin();
  }
};
const Beginning beginning;

}  // namespace

extern "C" {

void virtual_time_begin(void) {
  g_now = RealNow();
  t_is_here = true;
  g_is_on = true;
}
int virtual_time_is_on(void) { return g_is_on ? 1 : 0; }
int virtual_time_is_here(void) { return t_is_here ? 1 : 0; }
// Relaxed, because one thread writes it and the others need only an approximate time.
uint64_t virtual_time_now(void) { return g_now.load(std::memory_order_relaxed); }
void virtual_time_spend(uint64_t ns) {
  if (t_is_here) g_now.store(virtual_time_now() + ns, std::memory_order_relaxed);
}
void virtual_time_set_world(virtual_time_world world, void* context) {
  g_world = world;
  g_context = context;
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (!t_is_here || clock != CLOCK_MONOTONIC) {
    return static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  }
  if (!t_is_in_world) {
    virtual_time_spend(VIRTUAL_TIME_READ_NS);
    CheckWorld();
  }
  time->tv_sec = static_cast<time_t>(virtual_time_now() / kSecond);
  time->tv_nsec = static_cast<long>(virtual_time_now() % kSecond);
  return 0;
}

int epoll_pwait2(int epoll, epoll_event* events, int count, const timespec* timeout,
                 const sigset_t* signals) {
  constexpr std::size_t kSignalBytes = 8;
  if (!t_is_here) {
    return static_cast<int>(
        ::syscall(SYS_epoll_pwait2, epoll, events, count, timeout, signals, kSignalBytes));
  }
  const std::uint64_t until = timeout == nullptr
                                  ? kNever
                                  : virtual_time_now() +
                                        static_cast<std::uint64_t>(timeout->tv_sec) * kSecond +
                                        static_cast<std::uint64_t>(timeout->tv_nsec);
  for (;;) {
    const std::uint64_t next = CheckWorld();
    const int ready = ::epoll_wait(epoll, events, count, 0);
    const std::uint64_t then = std::min(until, next);
    if (ready != 0 || virtual_time_now() >= until || then == kNever) {
      virtual_time_spend(VIRTUAL_TIME_WAKE_NS);
      // If no event remains, another thread of the process has to end the wait.
      return ready != 0 || virtual_time_now() >= until ? ready
                                                       : ::epoll_wait(epoll, events, count, -1);
    }
    virtual_time_spend(std::max(then, virtual_time_now() + 1) - virtual_time_now());
  }
}

}  // extern "C"
