// SPDX-License-Identifier: Apache-2.0
#include "scheduler/smallest_key.h"

#include <algorithm>
#include <array>
#include <random>

#include <gtest/gtest.h>

namespace gpushared::scheduler {
namespace {

TEST(SmallestKey, FindsFirstOfSmallestAfterAnyChanges) {
  std::mt19937_64 random(11);
  for (const std::size_t places : {std::size_t{1}, std::size_t{9}, std::size_t{64}, kClientsMax}) {
    SmallestKey keys;
    std::array<std::int64_t, kClientsMax> model;
    model.fill(SmallestKey::kNone);
    for (int step = 0; step < 5000; ++step) {
      // Few distinct keys, so that many are equal; a third of the places have none.
      const std::size_t place = random() % places;
      const auto draw = static_cast<std::int64_t>(random() % 9);
      model[place] = draw < 3 ? SmallestKey::kNone : draw - 6;
      keys.Set(place, model[place]);
      if (random() % 3 == 0) continue;  // Several changes between two searches.
      const auto smallest = std::min_element(model.begin(), model.end());
      const SmallestKey::Found found = keys.Find();
      ASSERT_EQ(found.key, *smallest);
      if (*smallest == SmallestKey::kNone) continue;
      ASSERT_EQ(found.place, static_cast<std::size_t>(smallest - model.begin()));
    }
  }
}

TEST(SmallestKey, HasNoneAtFirst) { EXPECT_EQ(SmallestKey().Find().key, SmallestKey::kNone); }

}  // namespace
}  // namespace gpushared::scheduler
