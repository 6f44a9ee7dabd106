// SPDX-License-Identifier: Apache-2.0
// Constant expressions: operands, offsets, sizes of arrays and initial values (PTX ISA, Constant
// Expressions). Where the manual leaves room or says otherwise, ptxas decides: its initialised
// memory is what tests compare with.

#ifndef GPUSHARED_COMMON_PTX_TEXT_CONSTANT_H_
#define GPUSHARED_COMMON_PTX_TEXT_CONSTANT_H_

#include <cstdint>
#include <optional>

#include "gpushared/result.h"

#include "common/ptx/text/lexer.h"
#include "common/ptx/text/literal.h"

namespace gpushared::ptx {

// The value of an expression. Integers have 64 bits and wrap; floating-point numbers are doubles.
struct Constant {
  enum class Kind : std::uint8_t {
    kSigned,
    kUnsigned,
    kDouble,     // `bits` of one.
    kFloatBits,  // 0f3F800000: 32 bits as they are, which no operator takes.
  };
  Kind kind = Kind::kSigned;
  std::uint64_t bits = 0;

  bool IsInteger() const { return kind == Kind::kSigned || kind == Kind::kUnsigned; }
};

// Nested parentheses, casts, signs and conditions of one expression.
inline constexpr std::uint32_t kConstantDepthMax = 64;

// Signed, unless it has a U or does not fit; ptxas keeps the low 64 bits of longer ones.
Constant GetConstant(const Literal& literal);

// What ParseConstant reads. The caller owns the tokens and reports where an error is.
class TokenSource {
 public:
  virtual const Token& Current() const = 0;
  virtual void Advance() = 0;

 protected:
  ~TokenSource() = default;
};

// What the caller has already taken of the expression to know that it is one. In this order.
struct ConstantStart {
  char sign = '\0';             // '!', '-' or '+'.
  bool in_parentheses = false;  // A '('.
  std::optional<Constant> literal;
  bool ends_at_greater = false;  // Between < and >, as in `.reg .b32 %r<4>`.
};

// Takes as many tokens as belong to an expression. Errors are kInvalidArgument, or kLimitExceeded
// beyond kConstantDepthMax, and name what is wrong with the current token or with the operands.
Result<Constant> ParseConstant(TokenSource& tokens, const ConstantStart& start = {});

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_CONSTANT_H_
