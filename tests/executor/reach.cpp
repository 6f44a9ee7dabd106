// SPDX-License-Identifier: Apache-2.0
// Runs all tests of this folder in one process, then says which forms of the executor were in no
// kernel that one of them ran. An operation that nothing runs is right by luck.
#include <cstdio>
#include <set>
#include <string>
#include <string_view>

#include <gmock/gmock.h>

#include "server/executor/op_table.h"
#include "tests/executor/launcher.h"

int main(int argc, char** argv) {
  using gpushared::device::executor::BestFlavour;
  using gpushared::device::executor::Flavour;
  using gpushared::device::executor::Handler;
  ::testing::InitGoogleMock(&argc, argv);
  // Both flavours are compiled from one source and run by one set of tests: the better one will do.
  const Flavour flavour = BestFlavour();
  // Random kernels have no forms of their own, and take long.
  const std::string random =
      "-*Killed.AnyKernel*:*Members.Shuffle/*:*Members.Vote/*:"
      "*Members.Match/*:*Members.Redux/*:";
  GTEST_FLAG_SET(filter, random + (flavour == Flavour::kV3 ? "*/baseline" : "*/v3"));
  GTEST_FLAG_SET(brief, true);
  // A test that fails is red as a test of its own, and tried again there.
  if (RUN_ALL_TESTS() != 0) std::printf("some tests failed\n");

  const std::set<Handler>& run = gpushared::testing::HandlersRun();
  std::set<std::string> known, missing;
  gpushared::device::executor::VisitHandlers(flavour, [&](std::string_view key, Handler handler) {
    known.emplace(key);
    if (!run.contains(handler)) missing.emplace(key);
  });
  std::printf("%zu of %zu forms are in a kernel that a test runs\n", known.size() - missing.size(),
              known.size());
  for (const std::string& form : missing) std::printf("in none: %s\n", form.c_str());
  return missing.empty() ? 0 : 1;
}
