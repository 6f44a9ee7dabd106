// SPDX-License-Identifier: Apache-2.0
#include "scheduler/policy_catalog.h"

#include <chrono>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;

TEST(PolicyCatalog, EveryPolicyIsFoundByItsNameAndDescribed) {
  std::string names;
  for (const PolicyEntry& entry : PolicyCatalog()) {
    EXPECT_EQ(FindPolicy(entry.name), &entry);
    EXPECT_FALSE(entry.description.empty());
    EXPECT_NE(entry.make({}), nullptr);
    if (!names.empty()) names += ", ";
    names += entry.name;
  }
  EXPECT_EQ(PolicyNames(), names);
}

TEST(PolicyCatalog, AnUnknownNameIsNotFound) {
  EXPECT_EQ(FindPolicy(""), nullptr);
  EXPECT_EQ(FindPolicy("FIFO"), nullptr);
  EXPECT_EQ(FindPolicy("fif"), nullptr);
}

TEST(PolicyCatalog, OptionsOutOfBoundsAreRejected) {
  EXPECT_EQ(WhyInvalid({}), "");
  EXPECT_NE(WhyInvalid({.slice = 9us}), "");
  EXPECT_NE(WhyInvalid({.slice = 11s}), "");
  EXPECT_NE(WhyInvalid({.low_floor = -0.1}), "");
  EXPECT_NE(WhyInvalid({.low_floor = 0.95}), "");
  EXPECT_NE(WhyInvalid({.low_floor = std::nan("")}), "");
  EXPECT_NE(WhyInvalid({.hold_off = -1ns}), "");
  EXPECT_NE(WhyInvalid({.hold_off = 2s}), "");
  EXPECT_NE(WhyInvalid({.patience = -1ns}), "");
  EXPECT_NE(WhyInvalid({.patience = 11s}), "");
}

}  // namespace
}  // namespace gpushared::scheduler
