// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/config.h"
#include "server/config/config_syntax.h"
#include "server/config/read_config.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ConfigReport GetReport(std::string_view text) {
  Config config;
  return ReadConfigText(text, "test.toml", config);
}

std::string GetOnlyError(std::string_view text) {
  const ConfigReport report = GetReport(text);
  EXPECT_EQ(report.errors.size(), 1U) << text;
  return report.errors.empty() ? "" : report.errors.front();
}

TEST(ConfigCheck, NamesAllErrorsInTheOrderOfTheFile) {
  const ConfigReport report = GetReport(R"(slice = "soon"
polcy = "fair"
[[access]]
uid = 1
memory = "4GB"
[[access]]
memory = "50%"
[[endpoint]]
name = "b"
class = "royal"
weight = 0
)");
  EXPECT_THAT(report.errors,
              ElementsAre(HasSubstr("line 1"), AllOf(HasSubstr("line 2"), HasSubstr("polcy")),
                          AllOf(HasSubstr("line 5"), HasSubstr("'4GB'")),
                          AllOf(HasSubstr("line 6"), HasSubstr("0 subjects")),
                          AllOf(HasSubstr("line 10"), HasSubstr("'royal'")),
                          AllOf(HasSubstr("line 11"), HasSubstr("'0'"))));
  EXPECT_THAT(report.FirstError().message(), AllOf(HasSubstr("soon"), HasSubstr("5 more")));
}

TEST(ConfigCheck, SuggestsSimilarNameForMisspelledOption) {
  EXPECT_THAT(GetOnlyError("polcy = 'fair'"), HasSubstr("did you mean 'policy'?"));
  EXPECT_THAT(GetOnlyError("low-flor = '1%'"), HasSubstr("did you mean 'low_floor'?"));
  EXPECT_THAT(GetOnlyError("[acess]\nuid = 1"),
              AllOf(HasSubstr("line 1"), HasSubstr("did you mean [[access]]?")));
  EXPECT_THAT(GetOnlyError("[[acces]]\nuid = 1"), HasSubstr("did you mean [[access]]?"));
  EXPECT_THAT(GetOnlyError("[[endpoints]]\nname = 'b'"), HasSubstr("did you mean [[endpoint]]?"));
  EXPECT_THAT(GetOnlyError("[server]\npolicy = 'fair'"),
              HasSubstr("there are [[access]] and [[endpoint]]"));
  EXPECT_THAT(GetOnlyError("[[access]]\nuid = 1\nmemroy = '1GiB'"),
              HasSubstr("did you mean 'memory'?"));
  EXPECT_THAT(GetOnlyError("[[endpoint]]\nname = 'b'\nmax_shares = '5%'"),
              HasSubstr("did you mean 'max_share'?"));
  EXPECT_THAT(GetOnlyError("[[access]]\nuid = 1\npolicy = 'fair'"),
              HasSubstr("must be above the first [[access]]"));
  EXPECT_THAT(GetOnlyError("highest_class = 'high'"), HasSubstr("a key of [[access]]"));
  EXPECT_THAT(GetOnlyError("unheard_of_thing = 1"), AllOf(HasSubstr("policy"), HasSubstr("slice")));
}

TEST(ConfigCheck, SuggestsMissingQuotes) {
  const ConfigReport report = GetReport(
      "policy = fair\nslice = 2ms  # short\nmemory = 4GiB\nsocket = /run/g.sock\n"
      "log_level = \xe2\x80\x9cinfo\xe2\x80\x9d\n[[access]]\neveryone = yes\n");
  EXPECT_THAT(
      report.errors,
      ElementsAre(AllOf(HasSubstr("line 1 column 10"), HasSubstr("write policy = \"fair\"")),
                  AllOf(HasSubstr("line 2"), HasSubstr("write slice = \"2ms\"")),
                  AllOf(HasSubstr("line 3"), HasSubstr("write memory = \"4GiB\"")),
                  AllOf(HasSubstr("line 4"), HasSubstr("write socket = \"/run/g.sock\"")),
                  AllOf(HasSubstr("line 5"), HasSubstr("write log_level = \"info\"")),
                  HasSubstr("0 subjects"),
                  AllOf(HasSubstr("line 7"), HasSubstr("write everyone = true"))));
}

TEST(ConfigCheck, SuggestsCorrectUnits) {
  for (const char* text :
       {"memory = '4GB'", "memory = '4G'", "memory = '4 GiB'", "memory = '4gb'"}) {
    EXPECT_THAT(GetOnlyError(text), HasSubstr("did you mean 4GiB?")) << text;
  }
  EXPECT_THAT(GetOnlyError("slice = '2 ms'"), HasSubstr("did you mean 2ms?"));
  EXPECT_THAT(GetOnlyError("lease_grace = '10sec'"), HasSubstr("did you mean 10s?"));
  EXPECT_THAT(GetOnlyError("slice = '500\xc2\xb5s'"), HasSubstr("did you mean 500us?"));
}

TEST(ConfigCheck, AcceptsOnlyOneNotationForShares) {
  for (const char* key : {"client_max_share", "low_floor", "memory_reserve"}) {
    const std::string begin = std::string(key) + " = ";
    EXPECT_THAT(GetReport(begin + "'25%'").errors, IsEmpty()) << key;
    EXPECT_THAT(GetReport(begin + "'12.5%'").errors, IsEmpty()) << key;
    EXPECT_THAT(GetOnlyError(begin + "0.25"), HasSubstr("25%")) << key;
    EXPECT_THAT(GetOnlyError(begin + "'0.25'"), HasSubstr("25%")) << key;
  }
}

TEST(ConfigCheck, WarnsOfUnreachableRules) {
  const ConfigReport report = GetReport(
      "[[access]]\nuid = 7\n[[access]]\nuid = 7\n[[access]]\neveryone = true\nhighest_class = "
      "'high'\n[[access]]\ngid = 7\n");
  EXPECT_THAT(report.errors, IsEmpty());
  EXPECT_THAT(
      report.warnings,
      ElementsAre(AllOf(HasSubstr("line 3"), HasSubstr("uid 7 is never used"), HasSubstr("line 1")),
                  AllOf(HasSubstr("line 8"), HasSubstr("gid 7 is never used"),
                        HasSubstr("everyone in line 5"))));
  EXPECT_THAT(GetReport("[[access]]\nuid = 7\n[[access]]\ngid = 7\n[[access]]\neveryone = true\n"
                        "highest_class = 'high'\n")
                  .warnings,
              IsEmpty());
}

// A rule for an unknown user is an error, because treating it as a rule for everyone would widen
// access.
TEST(ConfigCheck, ReportsUnknownUserOnce) {
  const ConfigReport report =
      GetReport("[[access]]\nuser = 'nobody-here'\n[[access]]\nuid = 7\nhighest_class = 'high'\n");
  EXPECT_THAT(report.errors, ElementsAre(HasSubstr("nobody-here")));
  EXPECT_THAT(report.warnings, IsEmpty());
}

TEST(ConfigCheck, WarnsOfRuleForEveryoneThatTakesHighFromRoot) {
  const std::string everyone = "[[access]]\neveryone = true\n";
  EXPECT_THAT(GetReport(everyone).warnings,
              ElementsAre(AllOf(HasSubstr("line 1"), HasSubstr("applies to root"),
                                HasSubstr("at most class normal"))));
  EXPECT_THAT(GetReport(everyone + "highest_class = 'low'").warnings,
              ElementsAre(HasSubstr("at most class low")));
  EXPECT_THAT(GetReport(everyone + "highest_class = 'high'").warnings, IsEmpty());
  EXPECT_THAT(GetReport("[[access]]\nuid = 0\n" + everyone).warnings, IsEmpty());
}

TEST(ConfigCheck, WarnsOfClientLimitsAboveTheRulesOwn) {
  for (const std::string& head :
       {std::string("[[access]]\nuid = 7\n"), std::string("[[endpoint]]\nname = 'b'\n")}) {
    const auto warnings = [&](const char* keys) { return GetReport(head + keys).warnings; };
    EXPECT_THAT(warnings("memory = '10%'\nclient_memory = '50%'"),
                ElementsAre(AllOf(HasSubstr("line 1"), HasSubstr("client_memory = 50%"),
                                  HasSubstr("memory = 10%"))));
    EXPECT_THAT(warnings("memory = '1GiB'\nclient_memory = '2GiB'"),
                ElementsAre(HasSubstr("client_memory = 2 GiB")));
    EXPECT_THAT(
        warnings("max_share = '10%'\nclient_max_share = '25%'"),
        ElementsAre(AllOf(HasSubstr("client_max_share = 25%"), HasSubstr("max_share = 10%"))));
    EXPECT_THAT(warnings("memory = '50%'\nclient_memory = '10%'\nmax_share = '50%'"), IsEmpty());
    // No warning, because the size of the device is unknown, so 2 GiB may be less than 10 % of it.
    EXPECT_THAT(warnings("memory = '10%'\nclient_memory = '2GiB'"), IsEmpty());
  }
  EXPECT_THAT(
      GetReport("client_max_share = '50%'\n[[access]]\nuid = 7\nmax_share = '25%'").warnings,
      ElementsAre(AllOf(HasSubstr("line 2"), HasSubstr("client_max_share = 50%"))));
}

TEST(ConfigCheck, LimitsNestingBeforeParsing) {
  std::string dotted = "a";
  for (int i = 0; i < 20'000; ++i) dotted += ".a";
  for (const std::string& text :
       {"[" + dotted + "]\n", dotted + " = 1\n", "policy = { " + dotted + " = 1 }\n",
        "policy = " + std::string(20'000, '[') + "\n", "policy = " + std::string(20'000, '{')}) {
    EXPECT_THAT(GetOnlyError(text), AllOf(HasSubstr("line 1"), HasSubstr("allowed:")));
    EXPECT_FALSE(ParseEndpointTerms(text, "lease").ok());
  }
  std::string lines = "policy = ";
  for (int i = 0; i < 300; ++i) lines += "[{ a.a.a.a.a.a.a.a =\n";
  EXPECT_THAT(GetOnlyError(lines), HasSubstr("brackets"));
  EXPECT_THAT(
      GetOnlyError("socket = '" + std::string(90, '.') + "\"[[" + std::string(90, '.') + "'"),
      HasSubstr("socket"))
      << "what stands in quotes does not count";
}

std::string RejectionOfFile(const std::string& file) {
  const std::vector<const char*> arguments = {"gpushared", "--config", file.c_str()};
  const auto parsed = ParseCommandLine(arguments, {.cores = 2, .memory_bytes = 1U << 30}, "1");
  const auto* rejected = std::get_if<ExitNow>(&parsed);
  return rejected == nullptr ? "(accepted)" : rejected->text;
}

TEST(ConfigCheck, RejectsUnreadableFile) {
  const ::gpushared::testing::ScratchDirectory directory;
  EXPECT_THAT(RejectionOfFile(directory / "."), HasSubstr("cannot be read: Is a directory"));
  EXPECT_THAT(RejectionOfFile(directory / "none"), HasSubstr("cannot be opened: No such file"));
  EXPECT_THAT(RejectionOfFile("/proc/self/mem"), HasSubstr("cannot be read: "));
  std::ofstream(directory / "large.toml") << std::string(kConfigFileBytesMax + 1, '#');
  EXPECT_THAT(RejectionOfFile(directory / "large.toml"), HasSubstr("more than 1 MiB"));
}

TEST(ConfigCheck, NamesFileAndKeyOfConflictingOption) {
  const ::gpushared::testing::ScratchDirectory directory;
  const std::string file = directory / "server.toml";
  std::ofstream(file)
      << "policy = 'fair'\nlow_floor = '5%'\n[[access]]\nuid = 1\nmemory_limit = '5%'";
  EXPECT_THAT(RejectionOfFile(file),
              AllOf(HasSubstr("line 2"), HasSubstr("option low_floor rejected"),
                    HasSubstr("1 more"), HasSubstr("gpushared.toml(5)")));
}

TEST(ConfigCheck, CommandLineOptionReportsAndExits) {
  const ::gpushared::testing::ScratchDirectory directory;
  const std::string file = directory / "server.toml";
  std::ofstream(file)
      << "policy = fair\n[[access]]\neveryone = true\n[[access]]\nuid = 1\nmemory_limit = '1%'";
  const std::vector<const char*> arguments = {"gpushared", "--check-config", file.c_str()};
  const auto parsed = ParseCommandLine(arguments, {.cores = 2, .memory_bytes = 1U << 30}, "1");
  const auto* config = std::get_if<Config>(&parsed);
  ASSERT_NE(config, nullptr);
  ASSERT_TRUE(config->check);
  EXPECT_THAT(
      config->check->errors,
      ElementsAre(HasSubstr("line 1"),
                  AllOf(HasSubstr("line 4"), HasSubstr("memory_limit rejected for uid 1"))));
  EXPECT_THAT(config->check->warnings,
              ElementsAre(HasSubstr("applies to root"), HasSubstr("never used")));
}

}  // namespace
}  // namespace gpushared::server
