// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/lexer.h"

#include <sys/mman.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/ptx/text/literal.h"

namespace gpushared::ptx {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Cut(std::string_view text) {
  std::vector<std::string> tokens;
  Lexer lexer(text);
  for (Token token = lexer.Next(); token.kind != Token::Kind::kEnd; token = lexer.Next()) {
    if (token.kind == Token::Kind::kBroken) {
      tokens.emplace_back("broken");
      break;
    }
    tokens.emplace_back(token.text);
  }
  return tokens;
}

TEST(Lexer, KeepsQualifiersWithColonsInOneToken) {
  EXPECT_THAT(Cut("ld.L1::no_allocate.v2 {%r1,%r2}"),
              ElementsAre("ld", ".L1::no_allocate", ".v2", "{", "%r1", ",", "%r2", "}"));
  EXPECT_THAT(Cut("x.a:"), ElementsAre("x", ".a", ":"));
}

TEST(Lexer, DotWithoutNameIsPunctuation) {
  Lexer lexer(". a");
  EXPECT_EQ(lexer.Next().kind, Token::Kind::kPunctuation);
}

TEST(Lexer, TakesSignsIntoANumberOnlyAsExponents) {
  EXPECT_THAT(Cut("1.5e-3"), ElementsAre("1.5e-3"));
  EXPECT_THAT(Cut("0x1e-3"), ElementsAre("0x1e", "-", "3"));
  EXPECT_THAT(Cut("a+-4"), ElementsAre("a", "+", "-", "4"));
  EXPECT_THAT(Cut("0f3F800000"), ElementsAre("0f3F800000"));
}

TEST(Lexer, KeepsFractionsAndOperatorsInOneToken) {
  EXPECT_THAT(Cut(".5 .5e-3 5. 1.e3 1.e+3"), ElementsAre(".5", ".5e-3", "5.", "1.e3", "1.e+3"));
  EXPECT_THAT(Cut("tex.2d.v4 x.1d 5.e"), ElementsAre("tex", ".2d", ".v4", "x", ".1d", "5", ".e"));
  EXPECT_THAT(Cut("a<<b>>c<=d>=e==f!=g&&h||i"),
              ElementsAre("a", "<<", "b", ">>", "c", "<=", "d", ">=", "e", "==", "f", "!=", "g",
                          "&&", "h", "||", "i"));
  EXPECT_THAT(Cut("<>=|&!~"), ElementsAre("<", ">=", "|", "&", "!", "~"));
}

TEST(Lexer, SkipsCommentsAndTreatsThemAsSpace) {
  Lexer lexer("a/* x\n */b // rest");
  EXPECT_EQ(lexer.Next().text, "a");
  const Token second = lexer.Next();
  EXPECT_EQ(second.text, "b");
  EXPECT_TRUE(second.after_space);
  EXPECT_EQ(second.position.line, 2u);
  EXPECT_EQ(second.position.column, 4u);
  EXPECT_EQ(lexer.Next().kind, Token::Kind::kEnd);
  EXPECT_EQ(lexer.Next().kind, Token::Kind::kEnd);
}

TEST(Lexer, ReportsUnterminatedCommentsAndStrings) {
  EXPECT_THAT(Cut("a /* b"), ElementsAre("a", "broken"));
  EXPECT_THAT(Cut("/*/ a"), ElementsAre("broken"));
  EXPECT_THAT(Cut("/**/a"), ElementsAre("a"));
  EXPECT_THAT(Cut("a \"b\nc\""), ElementsAre("a", "broken"));
  EXPECT_THAT(Cut("\"\\"), ElementsAre("broken"));
  EXPECT_THAT(Cut("\"a\\\"b\""), ElementsAre("\"a\\\"b\""));
}

// Text that ends at the end of its memory, with the next page unmapped.
class TextAtAnEdge {
 public:
  explicit TextAtAnEdge(std::string_view text) {
    void* const pages =
        ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pages_ = static_cast<char*>(pages);
    ::mprotect(pages_ + kPage, kPage, PROT_NONE);
    text_ = {pages_ + kPage - text.size(), text.size()};
    std::memcpy(pages_ + kPage - text.size(), text.data(), text.size());
  }
  ~TextAtAnEdge() { ::munmap(pages_, 2 * kPage); }
  TextAtAnEdge(const TextAtAnEdge&) = delete;
  TextAtAnEdge& operator=(const TextAtAnEdge&) = delete;
  std::string_view text() const { return text_; }

 private:
  static constexpr std::size_t kPage = 4096;
  char* pages_;
  std::string_view text_;
};

TEST(Lexer, ReadsNothingBeyondTheText) {
  for (const std::string_view text :
       {"0",  "1.",   "1.5e", "1e+",   "0x1e+", ".", ".a", ".a:", ".a::", ".a::b", "/", "//",
        "/*", "/* *", "\"",   "\"a\\", "%",     "a", "1",  "1_",  "a.b",  "<",     " ", "\n"}) {
    const TextAtAnEdge edge(text);
    EXPECT_LE(Cut(edge.text()).size(), 3u) << text;
  }
}

TEST(Lexer, EndTokenHasItsPositionAfterAComment) {
  Lexer lexer("\na // b");
  EXPECT_EQ(lexer.Next().text, "a");
  const Token end = lexer.Next();
  EXPECT_EQ(end.kind, Token::Kind::kEnd);
  EXPECT_EQ(end.position.line, 2u);
  EXPECT_EQ(end.position.column, 7u);
}

TEST(Lexer, EveryByteBelongsToAToken) {
  std::string all;
  for (int c = 1; c < 256; ++c) {
    // An unterminated string remains broken whatever follows.
    if (c != '"') all += static_cast<char>(c);
  }
  Lexer lexer(all);
  std::size_t steps = 0;
  while (lexer.Next().kind != Token::Kind::kEnd && steps < 1000) ++steps;
  EXPECT_LT(steps, 1000u);
}

TEST(Literal, ReadsEverySpelling) {
  const auto bits = [](std::string_view text) { return ParseLiteral(text).value().bits; };
  EXPECT_EQ(bits("12"), 12u);
  EXPECT_EQ(bits("12U"), 12u);
  EXPECT_EQ(bits("017"), 15u);
  EXPECT_EQ(bits("0x1F"), 31u);
  EXPECT_EQ(bits("0xE1e"), 0xE1Eu);
  EXPECT_EQ(bits("0b101"), 5u);
  EXPECT_EQ(bits("0"), 0u);
  EXPECT_EQ(bits("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(bits("0f3F800000"), 0x3F800000u);
  EXPECT_EQ(ParseLiteral("0f3F800000")->float_bytes, 4u);
  EXPECT_EQ(bits("0d3FF0000000000000"), 0x3FF0000000000000u);
  EXPECT_EQ(bits("1.5"), 0x3FF8000000000000u);
  EXPECT_TRUE(ParseLiteral("1e3")->is_float);
  EXPECT_EQ(bits(".5"), 0x3FE0000000000000u);
  EXPECT_EQ(bits("5."), 0x4014000000000000u);
  EXPECT_EQ(bits("012.5"), 0x4029000000000000u);
  EXPECT_EQ(bits("0.0e-999"), 0u);
  EXPECT_TRUE(ParseLiteral("0x7U")->has_u);
  EXPECT_FALSE(ParseLiteral("7")->has_u);
  // Like ptxas, ParseLiteral keeps the low 64 bits of decimal and hexadecimal numbers, but rejects
  // binary numbers of more than 64 digits.
  EXPECT_EQ(bits("18446744073709551617"), 1u);
  EXPECT_EQ(bits("0x1FFFFFFFFFFFFFFFF"), UINT64_MAX);
  EXPECT_FALSE(ParseLiteral("0b1" + std::string(64, '0')));
}

TEST(Literal, RejectsInvalidAndTooLargeNumbers) {
  for (const char* text :
       {"",         "-1",    "x",          "12abc",      "08",    "0x",    "0b",
        "0b2",      "0f123", "0f3F80000G", "0d3F800000", "1.5.5", "1e999", "1e-999",
        "2.5e-310", "1.5f",  "5.e",        "12u",        "1_0",   "."}) {
    EXPECT_FALSE(ParseLiteral(text)) << text;
  }
}

}  // namespace
}  // namespace gpushared::ptx
