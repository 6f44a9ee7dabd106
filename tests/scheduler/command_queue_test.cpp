// SPDX-License-Identifier: Apache-2.0
#include "scheduler/command_queue.h"

#include <deque>
#include <random>

#include <gtest/gtest.h>

namespace gpushared::scheduler {
namespace {

TEST(CommandQueue, BehavesAsADequeUnderRandomCalls) {
  std::mt19937_64 random(5);
  CommandQueue queue;
  std::deque<std::uint64_t> model;
  for (std::uint64_t step = 1; step < 50'000; ++step) {
    switch (random() % 8) {
      case 0:
      case 1:
      case 2:
        queue.PushBack({.command = {.command = step}});
        model.push_back(step);
        break;
      case 3:
        queue.PushFront({.command = {.command = step}});
        model.push_front(step);
        break;
      case 4: {
        if (random() % 50 != 0) break;
        const auto odd = [](std::uint64_t command) { return command % 2 == 1; };
        const std::size_t removed = queue.RemoveIf(
            [&](const QueuedCommand& queued) { return odd(queued.command.command); });
        EXPECT_EQ(removed, std::erase_if(model, odd));
        break;
      }
      default:
        if (model.empty()) break;
        queue.PopFront();
        model.pop_front();
    }
    ASSERT_EQ(queue.size(), model.size());
    ASSERT_EQ(queue.empty(), model.empty());
    if (!model.empty()) {
      ASSERT_EQ(queue.front().command.command, model.front());
    }
  }
}

}  // namespace
}  // namespace gpushared::scheduler
