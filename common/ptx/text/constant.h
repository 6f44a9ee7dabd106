// SPDX-License-Identifier: Apache-2.0
// Constant expressions: operands, offsets, array sizes and initial values (PTX ISA, Constant
// Expressions). If the manual is ambiguous or wrong, ptxas is authoritative: tests compare results
// with the memory that ptxas initializes.

#ifndef GPUSHARED_COMMON_PTX_TEXT_CONSTANT_H_
#define GPUSHARED_COMMON_PTX_TEXT_CONSTANT_H_

#include <cstdint>
#include <optional>

#include "gpushared/result.h"

#include "common/ptx/text/lexer.h"
#include "common/ptx/text/literal.h"

namespace gpushared::ptx {

// Value of an expression. Integers have 64 bits and wrap; floating-point numbers are doubles.
struct Constant {
  enum class Kind : std::uint8_t {
    kSigned,
    kUnsigned,
    kDouble,     // `bits` are those of a double.
    kFloatBits,  // 0f3F800000: a 32-bit pattern, which is not allowed as an operand.
  };
  Kind kind = Kind::kSigned;
  std::uint64_t bits = 0;

  bool IsInteger() const { return kind == Kind::kSigned || kind == Kind::kUnsigned; }
};

// Limit for nested parentheses, casts, signs and conditions in an expression.
inline constexpr std::uint32_t kConstantDepthMax = 64;

// Returns the value of a number: signed, unless the number has a U suffix or does not fit. Like
// ptxas, keeps only the low 64 bits of longer numbers.
Constant GetConstant(const Literal& literal);

// Source of tokens for ParseConstant. The caller owns the tokens and adds the position to errors.
class TokenSource {
 public:
  virtual const Token& Current() const = 0;
  virtual void Advance() = 0;

 protected:
  ~TokenSource() = default;
};

// The beginning of an expression, which the caller has already consumed in order to recognize the
// expression: the members in their order.
struct ConstantStart {
  char sign = '\0';             // '!', '-' or '+'.
  bool in_parentheses = false;  // An opening parenthesis.
  std::optional<Constant> literal;
  bool ends_at_greater = false;  // A '>' ends the expression, as in `.reg .b32 %r<4>`.
};

// Consumes the tokens of an expression. Fails with kInvalidArgument, or kLimitExceeded above
// kConstantDepthMax; the message describes an error in the current token or in the operands.
Result<Constant> ParseConstant(TokenSource& tokens, const ConstantStart& start = {});

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_CONSTANT_H_
