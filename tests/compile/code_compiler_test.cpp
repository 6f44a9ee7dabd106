// SPDX-License-Identifier: Apache-2.0
#include "server/modules/code_compiler.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushared::server {
namespace {

TEST(CodeCompiler, LogsMissingCompilerAndContinues) {
  Config config;
  config.ptx_compiler = "/nonexistent/ptxas";
  config.code_cache = Config::kNone;
  std::vector<std::string> told;
  const device::MakeCodeCompiler make =
      GetCompiler(config, [&](const std::string& line) { told.push_back(line); });
  ASSERT_TRUE(make);
  EXPECT_EQ(make(), nullptr);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].starts_with(device::kWithoutCompiler)) << told[0];
  EXPECT_THAT(told[0], ::testing::HasSubstr("/nonexistent/ptxas"));
}

}  // namespace
}  // namespace gpushared::server
