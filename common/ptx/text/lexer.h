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
    kNumber,       // 12, 0x1F, 0f3F800000, 1.5e-3, .5; the sign is a separate token
    kString,       // "...", with the quotes
    kPunctuation,  // One character, or an operator of two: << >> <= >= == != && ||
    kBroken,       // An unterminated string or comment.
  };
  Kind kind = Kind::kEnd;
  bool after_space = false;  // Preceded by white space or a comment.
  std::string_view text;     // Part of the lexer's text.
  SourcePosition position;
};

// Splits PTX text into tokens, one at a time, so that hostile text uses no memory.
//
// Thread-compatible. Borrows the text.
class Lexer {
 public:
  // `text` must have at most kTextBytesMax bytes, because positions have 32 bits.
  explicit Lexer(std::string_view text) : text_(text) {}

  // Returns kEnd repeatedly after the end of the text, and kBroken repeatedly after an error.
  Token Next();

 private:
  // Returns false for an unterminated comment.
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
