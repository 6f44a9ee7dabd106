// SPDX-License-Identifier: Apache-2.0
#include "server/platform/thread_priority.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

#include <gtest/gtest.h>

namespace gpushared::server {
namespace {

using namespace std::chrono_literals;

TEST(RealtimeBudget, BusyThreadLosesRealtimePriorityUntilItWaits) {
  using Change = RealtimeBudget::Change;
  const auto at = [](auto time) { return RealtimeBudget::TimePoint(time); };
  RealtimeBudget budget;
  EXPECT_TRUE(budget.IsDue(at(1s)));
  EXPECT_EQ(budget.Update(at(1s), 0), Change::kNone) << "nothing is known of the time before";
  EXPECT_FALSE(budget.IsDue(at(1s + RealtimeBudget::kStint - 1ns)));
  EXPECT_TRUE(budget.IsDue(at(1s + RealtimeBudget::kStint)));
  EXPECT_EQ(budget.Update(at(2s), 6), Change::kNone) << "it has waited";
  EXPECT_EQ(budget.Update(at(3s), 6), Change::kOrdinary);
  EXPECT_EQ(budget.Update(at(4s), 6), Change::kNone) << "told once";
  EXPECT_EQ(budget.Update(at(5s), 7), Change::kRealtime);
  EXPECT_LT(2 * RealtimeBudget::kStint, kRealtimeMost);
}

TEST(PreferredBudget, ThreadAboveItsBudgetIsNormalUntilQuiet) {
  using Change = PreferredBudget::Change;
  const auto at = [](auto time) { return PreferredBudget::TimePoint(1000s + time); };
  PreferredBudget budget;
  EXPECT_TRUE(budget.IsDue(at(0ms)));
  EXPECT_EQ(budget.Update(at(0ms), 500ms), Change::kNone) << "nothing is known of the time before";
  EXPECT_FALSE(budget.IsDue(at(99ms)));
  EXPECT_TRUE(budget.IsDue(at(100ms)));
  EXPECT_EQ(budget.Update(at(100ms), 520ms), Change::kNone) << "a fifth of a core";
  EXPECT_EQ(budget.Update(at(200ms), 541ms), Change::kNormal);
  EXPECT_EQ(budget.Update(at(300ms), 600ms), Change::kNone) << "told once";
  EXPECT_EQ(budget.Update(at(2000ms), 700ms), Change::kPreferred);
}

// The report must be true whatever privileges the machine grants.
TEST(ThreadPriority, ReportsThreadsActualPriority) {
  std::thread([] {
    const ThreadPriority got = MakeThisThreadRealtime();
    EXPECT_EQ(got.is_realtime, (::sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) == SCHED_RR);
    EXPECT_EQ(got.is_realtime, got.ToString() == "real-time");
    EXPECT_EQ(got.is_realtime, got.why_not_more.empty());
    std::thread([] {
      EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER) << "what it starts is normal";
      EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), 0);
    }).join();
    const ThreadPriority preferred = PreferThisThread();
    EXPECT_FALSE(preferred.is_realtime);
    EXPECT_EQ(::sched_getscheduler(0) & ~SCHED_RESET_ON_FORK, SCHED_OTHER);
    EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), preferred.nice);
    EXPECT_EQ(preferred.nice == kPreferredNice, preferred.why_not_more.empty());
    MakeThisThreadNormal();
    EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), 0);
    EXPECT_EQ(PreferThisThread().nice, preferred.nice) << "and it may be preferred again";
  }).join();
}

TEST(ThreadPriority, CanBeSetForOtherThread) {
  std::promise<pid_t> number;
  std::promise<void> gate;
  std::thread other([&] {
    number.set_value(::gettid());
    gate.get_future().wait();
  });
  const pid_t thread = number.get_future().get();
  const int own = ::getpriority(PRIO_PROCESS, 0);
  const ThreadPriority preferred = PreferThread(thread);
  const int ahead = ::getpriority(PRIO_PROCESS, static_cast<id_t>(thread));
  MakeThreadNormal(thread);
  const int back = ::getpriority(PRIO_PROCESS, static_cast<id_t>(thread));
  gate.set_value();
  other.join();
  EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), own) << "this one is as it was";
  if (!preferred.why_not_more.empty()) GTEST_SKIP() << preferred.why_not_more;
  EXPECT_EQ(ahead, kPreferredNice);
  EXPECT_EQ(back, 0);
}

}  // namespace
}  // namespace gpushared::server
