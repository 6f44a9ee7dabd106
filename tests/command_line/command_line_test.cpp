// SPDX-License-Identifier: Apache-2.0
#include "common/command_line/command_line.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushared::command_line {
namespace {

using ::testing::HasSubstr;

std::optional<Stop> Parse(const Program& program, std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "program");
  return program.Parse(arguments);
}

TEST(CommandLine, OptionIsBareOnlyWithoutValue) {
  const auto is_bare = [](std::vector<const char*> arguments) {
    const Program program("help");
    double seconds = 0;
    const Option watch = program.AddOption("--watch", seconds, "").Expected(0, 1).Within(0.1, 3600);
    EXPECT_FALSE(Parse(program, std::move(arguments)));
    return watch.IsBare();
  };
  EXPECT_TRUE(is_bare({"--watch"}));
  EXPECT_FALSE(is_bare({"--watch", "3"}));
  EXPECT_FALSE(is_bare({}));
}

TEST(CommandLine, RejectionEndsParsingWithItsMessage) {
  const Program program("help");
  const Command act = program.AddCommand("act", "acts");
  act.OnUse([] { Reject("act: not today"); });
  EXPECT_FALSE(Parse(program, {}));
  const auto stop = Parse(program, {"act"});
  ASSERT_TRUE(stop);
  EXPECT_NE(stop->code, 0);
  EXPECT_EQ(stop->why, "act: not today");
  EXPECT_THAT(stop->errors, HasSubstr("act: not today"));
  EXPECT_EQ(stop->output, "");
}

TEST(CommandLine, NamesTheUnknownCommand) {
  const auto why = [](std::vector<const char*> arguments) {
    const Program program("help");
    program.RequireCommand();
    program.FallThrough();
    const Command client = program.AddCommand("client", "");
    client.RequireCommand();
    client.FallThrough();
    client.AddCommand("set", "").FallThrough();
    program.AddCommand("ps", "").FallThrough();
    const auto stop = Parse(program, std::move(arguments));
    EXPECT_TRUE(!stop || stop->errors.starts_with(stop->why));
    return stop ? stop->why : "";
  };
  EXPECT_EQ(why({"pss"}), "there is no command 'pss'; did you mean 'ps'?");
  EXPECT_EQ(why({"server", "now"}), "there is no command 'server'; there are client, ps");
  EXPECT_EQ(why({"client", "sett"}), "there is no command 'sett' of 'client'; did you mean 'set'?");
  EXPECT_THAT(why({"client"}), HasSubstr("subcommand is required"));
  EXPECT_THAT(why({}), HasSubstr("subcommand is required"));
  EXPECT_THAT(why({"ps", "--colour"}), HasSubstr("--colour"));
  EXPECT_EQ(why({"ps"}), "");
}

TEST(CommandLine, WrapsHelpAtOneHundredColumns) {
  std::string words;
  for (int i = 0; i < 60; ++i) words += "word" + std::to_string(i) + " ";
  const Program program(words);
  bool flag = false;
  program.AddFlag("--flag", flag, words);
  program.AddCommand("act", words);
  program.SetFooter(words);
  const auto stop = Parse(program, {"--help"});
  ASSERT_TRUE(stop);
  std::istringstream lines(stop->output);
  std::size_t longest = 0, times = 0;
  for (std::string line; std::getline(lines, line);) {
    longest = std::max(longest, line.size());
    times += line.ends_with("word59") ? 1 : 0;
  }
  EXPECT_LE(longest, 100U);
  EXPECT_GE(longest, 90U);
  EXPECT_EQ(times, 4U);
}

TEST(CommandLine, HelpIsNoError) {
  const Program program("Does what it does.");
  bool hidden = false;
  program.AddFlag("--hidden", hidden, "").Hidden();
  const auto stop = Parse(program, {"--help"});
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->code, 0);
  EXPECT_THAT(stop->output, HasSubstr("Does what it does."));
  EXPECT_THAT(stop->output, ::testing::Not(HasSubstr("--hidden")));
}

TEST(CommandLine, OptionsThatNeedOrExcludeEachOther) {
  const auto is_right = [](std::vector<const char*> arguments) {
    const Program program("help");
    std::string in, out, quiet;
    const Option input = program.AddOption("--in", in, "");
    program.AddOption("--out", out, "").Needs(input);
    program.AddOption("--quiet", quiet, "").Excludes(input);
    return !Parse(program, std::move(arguments));
  };
  EXPECT_TRUE(is_right({"--in", "a", "--out", "b"}));
  EXPECT_TRUE(is_right({"--quiet", "a"}));
  EXPECT_FALSE(is_right({"--out", "b"}));
  EXPECT_FALSE(is_right({"--in", "a", "--quiet", "b"}));
}

TEST(CommandLine, RangeRejectsWhatIsNoNumber) {
  const auto is_right = [](const char* text) {
    const Program program("help");
    double share = 0;
    program.AddOption("--share", share, "").Within(0, 100);
    return !Parse(program, {"--share", text});
  };
  EXPECT_TRUE(is_right("100"));
  EXPECT_FALSE(is_right("101"));
  EXPECT_FALSE(is_right("nan"));
  EXPECT_FALSE(is_right("1x"));
}

}  // namespace
}  // namespace gpushared::command_line
