// SPDX-License-Identifier: Apache-2.0
#include "ipc/wire/bytes.h"

#include <gtest/gtest.h>

namespace gpushared::ipc {
namespace {

TEST(FixedText, MustBeTerminatedAndFilledWithZeros) {
  std::string text;
  const char good[8] = "abc";
  EXPECT_TRUE(GetFixedText(good, text));
  EXPECT_EQ(text, "abc");
  const char full[4] = {'a', 'b', 'c', 'd'};
  EXPECT_FALSE(GetFixedText(full, text));
  const char dirty[8] = {'a', 0, 0, 'x', 0, 0, 0, 0};
  EXPECT_FALSE(GetFixedText(dirty, text));
}

TEST(FixedText, TruncatesAtCharacterBoundary) {
  char field[5];
  PutFixedText(field, "abc\xc3\xa9");  // Five bytes, with space for four.
  std::string text;
  EXPECT_TRUE(GetFixedText(field, text));
  EXPECT_EQ(text, "abc");
  EXPECT_EQ(CutText("a\xe2\x82\xac", 3), "a");
  EXPECT_EQ(CutText("a\xe2\x82\xac", 4), "a\xe2\x82\xac");
}

// Client text goes to logs and terminals, so it must contain neither escape sequences nor broken
// encoding.
TEST(PrintableText, RejectsControlCharactersAndBrokenUtf8) {
  EXPECT_TRUE(IsPrintableText(""));
  EXPECT_TRUE(IsPrintableText("serve \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"));
  for (const char* bad :
       {"\x1b[2J", "a\nb", "\x7f", "\xc2\x85", "\x80", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\xf0\x80\x80\x80", "\xe2\x82", "\xff"}) {
    EXPECT_FALSE(IsPrintableText(bad)) << bad;
  }
}

// "serve" and a lookalike of "serve" are two names to a program and one to an operator.
TEST(PrintableText, RejectsInvisibleAndBidirectionalCharacters) {
  for (const char* bad : {"a\xe2\x80\xae"
                          "b",
                          "a\xe2\x80\x8b", "\xe2\x80\x8d", "\xe2\x80\x8f", "\xe2\x80\xa8",
                          "\xe2\x80\xaa", "\xe2\x81\xa6", "\xe2\x81\xa9", "\xd8\x9c",
                          "\xef\xbb\xbf"
                          "a",
                          "\xc2\xad", "\xe1\xa0\x8e"}) {
    EXPECT_FALSE(IsPrintableText(bad)) << bad;
  }
  for (const char* good : {"\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d", "\xe2\x80\x93", "\xe2\x80\xa6",
                           "\xe2\x80\xa7", "\xe2\x80\xb0", "\xef\xbf\xbd"}) {
    EXPECT_TRUE(IsPrintableText(good)) << good;
  }
}

TEST(PrintableText, MakesAnyTextPrintable) {
  EXPECT_EQ(PrintableText("a\x1b[2Jb\xe2\x80\xae"
                          "c\xff\xc3\xa9\n"),
            "a?[2Jb?c?\xc3\xa9?");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_TRUE(IsPrintableText(PrintableText(all)));
}

}  // namespace
}  // namespace gpushared::ipc
