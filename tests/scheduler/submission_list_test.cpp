// SPDX-License-Identifier: Apache-2.0
#include "scheduler/submission_list.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace gpushared::scheduler {
namespace {

TEST(SubmissionList, KeepsTheOrderUnderRandomAddsAndRemoves) {
  constexpr std::size_t kLimit = 7;
  std::mt19937 random(5);
  SubmissionList<int> list(kLimit);
  std::vector<int> model;
  for (int step = 0; step < 20'000; ++step) {
    if (model.size() < kLimit && random() % 2 == 0) {
      list.Add([&] { return step; });
      model.push_back(step);
    } else if (!model.empty()) {
      const std::size_t at = random() % model.size();
      list.Remove(list.begin() + at);
      model.erase(model.begin() + static_cast<std::ptrdiff_t>(at));
    }
    ASSERT_EQ(std::vector<int>(list.begin(), list.end()), model);
    ASSERT_EQ(list.size(), model.size());
    ASSERT_EQ(list.empty(), model.empty());
  }
}

}  // namespace
}  // namespace gpushared::scheduler
