// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/initializer.h"

#include <bit>
#include <optional>

#include "common/ptx/text/literal.h"

namespace gpushared::ptx {
namespace {

Status Unreadable(const Token& token, std::string_view what) {
  return {StatusCode::kInvalidArgument, "expected " + std::string(what) + ", near '" +
                                            std::string(token.text.substr(0, 40)) + "'"};
}

}  // namespace

bool InitializerReader::Accept(std::string_view brace_or_comma) {
  if (token_.kind != Token::Kind::kPunctuation || token_.text != brace_or_comma) return false;
  Advance();
  return true;
}

bool InitializerReader::AtName() const {
  return token_.kind == Token::Kind::kIdentifier && token_.text != "WARP_SZ";
}

Result<InitialElement> InitializerReader::TakeElement() {
  if (AtName()) return TakeAddress();
  ConstantStart start;
  if (token_.kind == Token::Kind::kNumber) {
    const auto literal = ParseLiteral(token_.text);
    if (!literal) return Unreadable(token_, "a number of 64 bits");
    Advance();
    if (Accept("(")) return TakeMasked(*literal);
    start.literal = GetConstant(*literal);
  }
  const Result<Constant> value = ParseConstant(*this, start);
  if (!value) return value.status();
  InitialElement element;
  element.value = *value;
  return element;
}

// Reads an address of which the mask selects one byte: 0xFF shifted by a multiple of eight bits.
Result<InitialElement> InitializerReader::TakeMasked(const Literal& mask) {
  const int shift = std::countr_zero(mask.bits);
  if (mask.is_float || shift > 56 || shift % 8 != 0 || mask.bits >> shift != 0xff) {
    return Unreadable(token_, "a mask of one byte before it");
  }
  Result<InitialElement> element = TakeAddress();
  if (!element) return element;
  if (!Accept(")")) return Unreadable(token_, "')' of a mask");
  element->has_mask = true;
  element->mask_shift = static_cast<std::uint32_t>(shift);
  return element;
}

// symbol or generic(symbol), optionally followed by an offset.
Result<InitialElement> InitializerReader::TakeAddress() {
  InitialElement element;
  if (!AtName()) return Unreadable(token_, "a name");
  element.symbol = token_.text;
  Advance();
  if (element.symbol == "generic" && Accept("(")) {
    if (!AtName()) return Unreadable(token_, "a name");
    element.symbol = token_.text;
    Advance();
    if (!Accept(")")) return Unreadable(token_, "')' of generic");
  }
  const bool is_minus = token_.text == "-";
  if (!is_minus && token_.text != "+") return element;
  Advance();
  const Result<Constant> offset = ParseConstant(*this, {.sign = is_minus ? '-' : '+'});
  if (!offset) return offset.status();
  if (!offset->IsInteger()) return Unreadable(token_, "an integer as offset before it");
  element.offset = static_cast<std::int64_t>(offset->bits);
  return element;
}

std::uint64_t CountInitialElements(std::string_view text) {
  Lexer lexer(text);
  std::uint64_t commas = 0;
  std::uint64_t depth = 0;
  bool is_empty = true;
  for (Token token = lexer.Next(); token.kind != Token::Kind::kEnd; token = lexer.Next()) {
    if (token.kind == Token::Kind::kBroken) break;
    const bool opens = token.text == "{" || token.text == "(";
    const bool closes = token.text == "}" || token.text == ")";
    if (depth > 0 && !(closes && depth == 1)) is_empty = false;
    if (token.text == "," && depth == 1) ++commas;
    if (opens) ++depth;
    if (closes && --depth == 0) break;
  }
  return is_empty ? 0 : commas + 1;
}

}  // namespace gpushared::ptx
