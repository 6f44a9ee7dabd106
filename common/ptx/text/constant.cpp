// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/constant.h"

#include <array>
#include <bit>
#include <string>
#include <string_view>
#include <utility>

namespace gpushared::ptx {
namespace {

constexpr std::uint64_t kWarpSize = 32;

struct Operator {
  std::string_view text;
  int precedence;  // Larger values bind tighter; all operators are left-associative.
};
constexpr std::array<Operator, 18> kOperators = {{
    {"*", 10},
    {"/", 10},
    {"%", 10},
    {"+", 9},
    {"-", 9},
    {"<<", 8},
    {">>", 8},
    {"<", 7},
    {">", 7},
    {"<=", 7},
    {">=", 7},
    {"==", 6},
    {"!=", 6},
    {"&", 5},
    {"^", 4},
    {"|", 3},
    {"&&", 2},
    {"||", 1},
}};

Status Invalid(std::string_view what) { return {StatusCode::kInvalidArgument, std::string(what)}; }

double AsDouble(const Constant& value) { return std::bit_cast<double>(value.bits); }
std::int64_t AsSigned(const Constant& value) { return static_cast<std::int64_t>(value.bits); }
Constant Truth(bool value) { return {Constant::Kind::kSigned, value ? std::uint64_t{1} : 0}; }
Constant Real(double value) {
  return {Constant::Kind::kDouble, std::bit_cast<std::uint64_t>(value)};
}

template <typename T>
std::optional<bool> Compared(std::string_view op, T a, T b) {
  if (op == "<") return a < b;
  if (op == ">") return a > b;
  if (op == "<=") return a <= b;
  if (op == ">=") return a >= b;
  if (op == "==") return a == b;
  if (op == "!=") return a != b;
  return std::nullopt;
}

Result<Constant> ApplyToDoubles(std::string_view op, double a, double b) {
  if (const auto truth = Compared(op, a, b)) return Truth(*truth);
  if (op == "+") return Real(a + b);
  if (op == "-") return Real(a - b);
  if (op == "*") return Real(a * b);
  if (op != "/") return Invalid("'" + std::string(op) + "' takes integers");
  if (b == 0) return Invalid("a constant is divided by zero");
  return Real(a / b);
}

std::uint64_t Quotient(const Constant& a, const Constant& b, bool is_signed) {
  if (!is_signed) return a.bits / b.bits;
  // The quotient of the smallest number and -1 overflows.
  if (AsSigned(b) == -1) return 0 - a.bits;
  return static_cast<std::uint64_t>(AsSigned(a) / AsSigned(b));
}

// Shifts use the low six bits of the distance, as ptxas does on x86.
std::uint64_t ShiftedRight(const Constant& a, std::uint64_t distance) {
  if (a.kind == Constant::Kind::kUnsigned) return a.bits >> (distance & 63);
  return static_cast<std::uint64_t>(AsSigned(a) >> (distance & 63));
}

Result<Constant> ApplyToIntegers(std::string_view op, const Constant& a, const Constant& b) {
  const bool is_signed = a.kind == Constant::Kind::kSigned && b.kind == Constant::Kind::kSigned;
  const auto compared = is_signed ? Compared(op, AsSigned(a), AsSigned(b))  //
                                  : Compared(op, a.bits, b.bits);
  if (compared) return Truth(*compared);
  if (op == "&&") return Truth(a.bits != 0 && b.bits != 0);
  if (op == "||") return Truth(a.bits != 0 || b.bits != 0);
  if (op == "<<") return Constant{a.kind, a.bits << (b.bits & 63)};
  if (op == ">>") return Constant{a.kind, ShiftedRight(a, b.bits)};
  if ((op == "/" || op == "%") && b.bits == 0) return Invalid("a constant is divided by zero");
  // Like ptxas, uses the unsigned remainder for signed operands as well.
  if (op == "%") return Constant{Constant::Kind::kUnsigned, a.bits % b.bits};
  const auto kind = is_signed ? Constant::Kind::kSigned : Constant::Kind::kUnsigned;
  if (op == "/") return Constant{kind, Quotient(a, b, is_signed)};
  if (op == "*") return Constant{kind, a.bits * b.bits};
  if (op == "+") return Constant{kind, a.bits + b.bits};
  if (op == "-") return Constant{kind, a.bits - b.bits};
  if (op == "&") return Constant{kind, a.bits & b.bits};
  if (op == "^") return Constant{kind, a.bits ^ b.bits};
  return Constant{kind, a.bits | b.bits};
}

Result<Constant> Apply(std::string_view op, const Constant& a, const Constant& b) {
  if (a.IsInteger() && b.IsInteger()) return ApplyToIntegers(op, a, b);
  if (a.kind == Constant::Kind::kDouble && b.kind == Constant::Kind::kDouble) {
    return ApplyToDoubles(op, AsDouble(a), AsDouble(b));
  }
  return Invalid("operands of '" + std::string(op) + "' have different types");
}

Result<Constant> ApplySign(char sign, const Constant& a) {
  const bool is_double = a.kind == Constant::Kind::kDouble;
  if (sign == '+' && (is_double || a.IsInteger())) return a;
  if (sign == '-' && is_double) return Constant{a.kind, a.bits ^ std::uint64_t{1} << 63};
  if (!a.IsInteger()) return Invalid(std::string("'") + sign + "' takes an integer");
  if (sign == '-') return Constant{a.kind, 0 - a.bits};
  if (sign == '~') return Constant{Constant::Kind::kUnsigned, ~a.bits};
  return Truth(a.bits == 0);
}

// Recursive descent: signs, parentheses and conditions take one level each, and operator precedence
// at most ten within each level.
class ConstantParser {
 public:
  ConstantParser(TokenSource& tokens, const ConstantStart& start)
      : tokens_(tokens), start_(start) {}

  Result<Constant> Run() { return Condition(); }

 private:
  bool At(std::string_view text) const { return tokens_.Current().text == text; }
  bool Accept(std::string_view text) {
    if (!At(text)) return false;
    tokens_.Advance();
    return true;
  }
  Status Enter() {
    if (++depth_ <= kConstantDepthMax) return {};
    return {StatusCode::kLimitExceeded,
            "a constant nested deeper than " + std::to_string(kConstantDepthMax)};
  }

  // a ? b : c. The result has the type of the selected value.
  Result<Constant> Condition() {
    if (Status entered = Enter(); !entered.ok()) return entered;
    Result<Constant> value = Binary(1);
    if (value && Accept("?")) value = Choice(*value);
    --depth_;
    return value;
  }

  Result<Constant> Choice(const Constant& condition) {
    Result<Constant> if_true = Condition();
    if (!if_true) return if_true;
    if (!Accept(":")) return Invalid("expected ':' of a condition");
    Result<Constant> if_false = Condition();
    if (!if_false) return if_false;
    if (!condition.IsInteger() || !if_true->IsInteger() || !if_false->IsInteger()) {
      return Invalid("a condition takes integers");
    }
    return condition.bits != 0 ? if_true : if_false;
  }

  const Operator* OperatorAhead() const {
    const Token& token = tokens_.Current();
    // The lexer returns a single % as a name.
    if (token.kind != Token::Kind::kPunctuation && token.text != "%") return nullptr;
    if (start_.ends_at_greater && parentheses_ == 0 && token.text.starts_with('>')) return nullptr;
    for (const Operator& op : kOperators) {
      if (token.text == op.text) return &op;
    }
    return nullptr;
  }

  Result<Constant> Binary(int least) {
    Result<Constant> left = Signed();
    while (left) {
      const Operator* const op = OperatorAhead();
      if (op == nullptr || op->precedence < least) break;
      tokens_.Advance();
      const Result<Constant> right = Binary(op->precedence + 1);
      if (!right) return right;
      left = Apply(op->text, *left, *right);
    }
    return left;
  }

  Result<Constant> Signed() {
    char sign = std::exchange(start_.sign, '\0');
    if (sign == '\0') {
      if (start_.in_parentheses || start_.literal) return Primary();
      const std::string_view text = tokens_.Current().text;
      const bool is_sign = text == "+" || text == "-" || text == "!" || text == "~";
      if (!is_sign) return Primary();
      sign = text.front();
      tokens_.Advance();
    }
    if (Status entered = Enter(); !entered.ok()) return entered;
    Result<Constant> value = Signed();
    --depth_;
    return value ? ApplySign(sign, *value) : value;
  }

  Result<Constant> Primary() {
    if (std::exchange(start_.in_parentheses, false) || Accept("(")) return Parenthesised();
    if (start_.literal) return *std::exchange(start_.literal, std::nullopt);
    const Token& token = tokens_.Current();
    if (token.kind == Token::Kind::kIdentifier && token.text == "WARP_SZ") {
      tokens_.Advance();
      return Constant{Constant::Kind::kSigned, kWarpSize};
    }
    if (token.kind != Token::Kind::kNumber) return Invalid("expected a constant");
    const auto literal = ParseLiteral(token.text);
    if (!literal) return Invalid("not a number of 64 bits");
    tokens_.Advance();
    return GetConstant(*literal);
  }

  // (value), or a cast such as (.s64) value.
  Result<Constant> Parenthesised() {
    const bool to_signed = At(".s64");
    if (to_signed || At(".u64")) {
      tokens_.Advance();
      if (!Accept(")")) return Invalid("expected ')' of a cast");
      if (Status entered = Enter(); !entered.ok()) return entered;
      const Result<Constant> value = Signed();
      --depth_;
      if (!value) return value;
      if (!value->IsInteger()) return Invalid("a cast takes an integer");
      return Constant{to_signed ? Constant::Kind::kSigned : Constant::Kind::kUnsigned, value->bits};
    }
    ++parentheses_;
    Result<Constant> value = Condition();
    --parentheses_;
    if (value && !Accept(")")) return Invalid("expected ')'");
    return value;
  }

  TokenSource& tokens_;
  ConstantStart start_;
  std::uint32_t depth_ = 0;
  std::uint32_t parentheses_ = 0;
};

}  // namespace

Constant GetConstant(const Literal& literal) {
  if (literal.is_float) {
    const bool single = literal.float_bytes == 4;
    return {single ? Constant::Kind::kFloatBits : Constant::Kind::kDouble, literal.bits};
  }
  const bool is_unsigned = literal.has_u || literal.bits >> 63 != 0;
  return {is_unsigned ? Constant::Kind::kUnsigned : Constant::Kind::kSigned, literal.bits};
}

Result<Constant> ParseConstant(TokenSource& tokens, const ConstantStart& start) {
  return ConstantParser(tokens, start).Run();
}

}  // namespace gpushared::ptx
