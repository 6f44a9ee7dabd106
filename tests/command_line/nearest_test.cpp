// SPDX-License-Identifier: Apache-2.0
#include "common/command_line/nearest.h"

#include <array>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace gpushared::command_line {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"policy", "slice", "socket", "ps", "low_floor"};

TEST(Nearest, FindsTheNameOfATypingMistake) {
  EXPECT_EQ(Nearest("polcy", kNames), "policy");   // A character is missing.
  EXPECT_EQ(Nearest("sliice", kNames), "slice");   // A character is doubled.
  EXPECT_EQ(Nearest("sacket", kNames), "socket");  // A character is wrong.
  EXPECT_EQ(Nearest("polciy", kNames), "policy");  // Two characters are swapped.
  EXPECT_EQ(Nearest("low-flor", kNames), "low_floor");
  EXPECT_EQ(Nearest("pss", kNames), "ps");
}

TEST(Nearest, LeavesOtherWordsAlone) {
  for (const std::string& other : {std::string(), std::string("memory"), std::string("xy"),
                                   std::string("x"), std::string(100'000, 'p')}) {
    EXPECT_EQ(Nearest(other, kNames), "") << other.substr(0, 10);
    EXPECT_EQ(DidYouMean(other, kNames), "");
  }
  EXPECT_EQ(DidYouMean("polcy", kNames), "; did you mean 'policy'?");
}

}  // namespace
}  // namespace gpushared::command_line
