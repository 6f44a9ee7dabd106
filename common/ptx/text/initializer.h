// SPDX-License-Identifier: Apache-2.0
// Reads the initial values of a variable, which the module stores as text.

#ifndef GPUSHARED_COMMON_PTX_TEXT_INITIALIZER_H_
#define GPUSHARED_COMMON_PTX_TEXT_INITIALIZER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "gpushared/result.h"

#include "common/ptx/text/constant.h"
#include "common/ptx/text/lexer.h"

namespace gpushared::ptx {

// An element: a number, or an address or one byte of it.
struct InitialElement {
  Constant value;
  std::string symbol;  // Empty for numbers.
  std::int64_t offset = 0;
  bool has_mask = false;
  std::uint32_t mask_shift = 0;  // 0xFF00(symbol): bits 8 to 15.
};

// Reads "{1, 2-1, {0f3F800000}, generic(x)+4, 0xFF00(y)}" from left to right. The caller, which has
// the type, checks the structure of the braces.
//
// Thread-compatible. Borrows the text.
class InitializerReader final : private TokenSource {
 public:
  explicit InitializerReader(std::string_view text) : lexer_(text) { Advance(); }

  bool Accept(std::string_view brace_or_comma);
  bool AtEnd() const { return token_.kind == Token::Kind::kEnd; }
  Result<InitialElement> TakeElement();

 private:
  const Token& Current() const override { return token_; }
  void Advance() override { token_ = lexer_.Next(); }
  bool AtName() const;
  Result<InitialElement> TakeMasked(const Literal& mask);
  Result<InitialElement> TakeAddress();

  Lexer lexer_;
  Token token_;
};

// Number of elements in the outermost braces: the size of an array that is declared with [].
std::uint64_t CountInitialElements(std::string_view text);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_INITIALIZER_H_
