// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mps/input.h"

#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushared::server::mps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MpsInput, WordsAreSeparatedByBlanksAndTabs) {
  const Result<std::vector<std::string>> words = Words("  ps\t-p  12 ");
  ASSERT_TRUE(words.ok());
  EXPECT_THAT(*words, ElementsAre("ps", "-p", "12"));
  EXPECT_TRUE(Words("")->empty());
}

TEST(MpsInput, RejectsNonTextLinesNamingTheByte) {
  for (const char* line : {"ps\x1b[2J", "ps\r", "p\x7fs", "p\xc3\xa4s", "ps\x01"}) {
    const Result<std::vector<std::string>> words = Words(line);
    EXPECT_FALSE(words.ok()) << line;
    EXPECT_THAT(words.status().message(), HasSubstr("line rejected: byte ")) << line;
  }
  EXPECT_FALSE(Words(std::string_view("ps\0", 3)).ok());
}

TEST(MpsInput, ALineThatIsTooLongIsRejectedAndTheNextOneIsRead) {
  std::istringstream input(std::string(1'000'000, 'a') + "\nps");
  const std::optional<std::string> first = NextLine(input);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->size(), kLineBytesMax + 1) << "no more is kept";
  EXPECT_THAT(Words(*first).status().message(), HasSubstr("longer than 1024 bytes"));
  EXPECT_EQ(NextLine(input), "ps");
  EXPECT_EQ(NextLine(input), std::nullopt);
  EXPECT_TRUE(Words(std::string(kLineBytesMax, 'a')).ok());
}

TEST(MpsInput, NumbersAreDigitsWithinTheirRange) {
  EXPECT_EQ(*Number("1", "PID", 1, kPidMax), 1U);
  EXPECT_EQ(*Number("4194304", "PID", 1, kPidMax), kPidMax);
  for (const char* word : {"0", "4194305", "-1", "+1", "1x", "0x10", "", "99999999999999999999"}) {
    EXPECT_THAT(Number(word, "PID", 1, kPidMax).status().message(),
                HasSubstr("allowed: 1 to 4194304"))
        << word;
  }
}

TEST(MpsInput, PercentagesAreAboveZeroAndAtMostAHundred) {
  EXPECT_EQ(*Percentage("100"), 100);
  EXPECT_EQ(*Percentage("12.5"), 12.5);
  for (const char* word : {"0", "-5", "100.1", "1e2", "nan", "inf", "50%", ""}) {
    EXPECT_FALSE(Percentage(word).ok()) << word;
  }
}

TEST(MpsInput, MemoryLimitsHaveAUnit) {
  EXPECT_EQ(*MemoryLimit("4G"), std::uint64_t{4} << 30);
  EXPECT_EQ(*MemoryLimit("512M"), std::uint64_t{512} << 20);
  EXPECT_EQ(*MemoryLimit("4g"), std::uint64_t{4} << 30);
  EXPECT_EQ(*MemoryLimit("512MB"), std::uint64_t{512} << 20);
  for (const char* word : {"", "G", "4", "4T", "-4G", "0G", "1048577G", "18446744073709551615G"}) {
    EXPECT_FALSE(MemoryLimit(word).ok()) << word;
  }
}

}  // namespace
}  // namespace gpushared::server::mps
