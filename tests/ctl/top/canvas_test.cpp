// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/top/canvas.h"

#include <string>

#include <gtest/gtest.h>

#include "server/tools/ctl/top/units.h"
#include "tests/ctl/top/answers.h"

namespace gpushared::server::top {
namespace {

std::string Shown(std::string_view text, Charset charset = Charset::kUtf8) {
  std::string shown;
  for (const Cell& cell : GetCells(text, charset, Style::kPlain)) shown += cell.text;
  return shown;
}

TEST(TopCanvas, ControlCharactersBecomeQuestionMarks) {
  const Utf8Locale locale;
  EXPECT_EQ(Shown("a\x1b[2J\n\t\x7f"), "a?[2J???");
  EXPECT_EQ(Shown("\xc2\x9b"), "?") << "U+009B begins a sequence, too";
  EXPECT_EQ(Shown(std::string_view("a\0b", 3)), "a?b");
}

TEST(TopCanvas, BrokenUtf8BecomesOneQuestionMarkPerByte) {
  const Utf8Locale locale;
  EXPECT_EQ(Shown("\xff\xfe"), "??");
  EXPECT_EQ(Shown("\xc3"), "?");
  EXPECT_EQ(Shown("\xe2\x82"), "??");
  EXPECT_EQ(Shown("\xc0\xaf"), "??") << "longer than it need be";
  EXPECT_EQ(Shown("\xe0\x80\xaf"), "???");
  EXPECT_EQ(Shown("\xed\xa0\x80"), "???") << "half of a pair of UTF-16";
  EXPECT_EQ(Shown("\xf4\x90\x80\x80"), "????") << "beyond Unicode";
  EXPECT_EQ(Shown("\xc3\xa4\xf0\x9f\x98\x80"), "\xc3\xa4\xf0\x9f\x98\x80");
}

TEST(TopCanvas, OmitsInvisibleAndBidirectionalCharacters) {
  const Utf8Locale locale;
  EXPECT_EQ(Shown("a\u202eb\u2066c\u200fd\u200be\ufefff"), "abcdef");
  EXPECT_EQ(Shown("\u05d0\u05d1"), "\u05d0\u05d1") << "letters from right to left stay";
}

TEST(TopCanvas, WideCharactersTakeTwoCells) {
  const Utf8Locale locale;
  EXPECT_EQ(GetWidth("日本", Charset::kUtf8), 4U);
  Canvas canvas({7, 1}, Charset::kUtf8);
  EXPECT_EQ(canvas.Put(0, 0, "日本日本"), 7U);
  EXPECT_EQ(canvas.Text(), "日本日…\n");
  Canvas narrow({6, 1}, Charset::kUtf8);
  narrow.Put(0, 0, "日本日本");
  EXPECT_EQ(narrow.Text(), "日本 …\n") << "no half character in front of the cut";
  for (std::size_t column = 0; column < 6; ++column)
    EXPECT_FALSE(column == 4 && narrow.Row(0)[column].text.empty());
}

TEST(TopCanvas, CharacterHasAtMostTwoCombiningMarks) {
  const Utf8Locale locale;
  EXPECT_EQ(GetWidth("e\u0301\u0301\u0301\u0301x", Charset::kUtf8), 2U);
  EXPECT_EQ(Shown("e\u0301\u0301\u0301\u0301x"), "e\u0301\u0301x");
  EXPECT_EQ(Shown("\u0301x"), "x") << "nothing to carry it";
}

TEST(TopCanvas, AsciiShowsNothingElse) {
  EXPECT_EQ(Shown("a\u00e4\u65e5\xff", Charset::kAscii), "a???");
  Canvas canvas({4, 1}, Charset::kAscii);
  canvas.Put(0, 0, "abcdef");
  EXPECT_EQ(canvas.Text(), "abc~\n");
}

TEST(TopCanvas, NothingIsDrawnOutside) {
  Canvas canvas({4, 2}, Charset::kAscii);
  EXPECT_EQ(canvas.Put(2, 0, "below"), 0U);
  EXPECT_EQ(canvas.Put(0, 4, "beside"), 4U);
  EXPECT_EQ(canvas.Put(0, 2, "xy", Style::kPlain, 0), 2U);
  canvas.PutRight(1, 3, "abcdef");
  canvas.Paint(7, Style::kAlarm);
  EXPECT_EQ(canvas.Text(), "\nab~\n");
}

TEST(TopUnits, FiguresAreShortAndHaveUnits) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1024), "1.0 KiB");
  EXPECT_EQ(BytesText(1023.6 * 1024), "1.0 MiB");
  EXPECT_EQ(BytesText(150.0 * 1024 * 1024), "150 MiB");
  EXPECT_EQ(MicrosecondsText(999.4), "999 us");
  EXPECT_EQ(MicrosecondsText(999.6), "1.0 ms");
  EXPECT_EQ(MicrosecondsText(14'000), "14.0 ms");
  EXPECT_EQ(MicrosecondsText(2'500'000), "2.5 s");
  EXPECT_EQ(CountText(0), "0");
  EXPECT_EQ(CountText(0.25), "0.2");
  EXPECT_EQ(EnergyText(0.25), "0.2 J");
  EXPECT_EQ(EnergyText(1234), "1.2 kJ");
  EXPECT_EQ(EnergyText(5e7), "50 MJ");
  EXPECT_EQ(EnergyText(1e20), "huge");
  EXPECT_EQ(EnergyText({}), "-");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(CountText(1234), "1.2k");
  EXPECT_EQ(CountText(999'600), "1.0M");
  EXPECT_EQ(PercentText(0.4567), "45.7");
  EXPECT_EQ(PercentText(1), "100.0");
  EXPECT_EQ(AgeText(59.9), "59 s");
  EXPECT_EQ(AgeText(3 * 3600 + 5 * 60), "3 h 5 min");
  EXPECT_EQ(AgeText(4 * 86400 + 3 * 3600), "4 d 3 h");
}

TEST(TopUnits, FiguresHaveBoundedWidth) {
  for (const double number : {1e17, 1e30, 1e300}) {
    for (const auto& text :
         {PercentText, CountText, WholeText, BytesText, MicrosecondsText, AgeText}) {
      EXPECT_LE(text(number).size(), 24U) << number;
      EXPECT_EQ(text(std::nullopt), "-");
    }
  }
}

}  // namespace
}  // namespace gpushared::server::top
