// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_COMMON_PTX_TEXT_LEXER_H_
#define GPUSHARED_COMMON_PTX_TEXT_LEXER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

struct Token {
  enum class Kind : std::uint8_t {
    kEnd,
    kIdentifier,   // foo, %r1, $L__BB0_1
    kDotted,       // .f32, .L2::cache_hint, with the dot
    kNumber,       // 12, 0x1F, 0f3F800000, 1.5e-3, .5; the sign is a token of its own
    kString,       // "...", with the quotes
    kPunctuation,  // One character, or an operator of two: << >> <= >= == != && ||
    kBroken,       // A string or comment without an end.
  };
  Kind kind = Kind::kEnd;
  bool after_space = false;  // White space or a comment stands before it.
  std::string_view text;     // Part of the lexer's text.
  SourcePosition position;
};

// Cuts PTX text into tokens, one at a time, so that a hostile text costs no memory.
//
// Thread-compatible. Borrows the text.
class Lexer {
 public:
  // Positions count in 32 bits, so `text` is at most kTextBytesMax long.
  explicit Lexer(std::string_view text) : text_(text) {}

  // kEnd for ever once the text is used up, kBroken for ever once it cannot go on.
  Token Next();

 private:
  // False when a comment has no end.
  bool SkipSpace();
  std::size_t ScanNumber(std::size_t begin) const;
  bool IsExponent(std::size_t at) const;
  std::size_t ScanFraction(std::size_t begin) const;
  std::size_t ScanDotted(std::size_t begin) const;
  std::size_t ScanString(std::size_t begin) const;
  void NewLine(std::size_t next);

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t line_start_ = 0;
  std::uint32_t line_ = 1;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_LEXER_H_
