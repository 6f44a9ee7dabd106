// SPDX-License-Identifier: Apache-2.0
// Processes that use cores and send nothing to the server: the control for storms of busy clients.
#include <time.h>

#include <chrono>
#include <thread>

#include "tests/hostile/storms/storms.h"

namespace gpushared::storms {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kPeriod = std::chrono::milliseconds(10);
// Offset between the first periods of two processes.
constexpr nanoseconds kApart = std::chrono::microseconds(1300);

nanoseconds TimeOfThisThread() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + nanoseconds(used.tv_nsec);
}

// Counts for about 0.1 ms.
void Count() {
  volatile std::uint64_t step = 0;
  while (step < 50'000) step = step + 1;
}

}  // namespace

void TakeCores(const Attacker& attacker) {
  for (;;) {
    Count();
    ++attacker.board.deeds;
  }
}

void TakePartOfCore(const Attacker& attacker, double part) {
  const auto share = std::chrono::duration_cast<nanoseconds>(part * kPeriod);
  auto period_ends = std::chrono::steady_clock::now() + attacker.number * kApart;
  std::this_thread::sleep_until(period_ends);
  // `due` is cumulative, so time that the process did not get in one period is made up for in later
  // ones.
  for (nanoseconds due = TimeOfThisThread() + share;; due += share) {
    while (TimeOfThisThread() < due) Count();
    period_ends += kPeriod;
    std::this_thread::sleep_until(period_ends);
  }
}

}  // namespace gpushared::storms
