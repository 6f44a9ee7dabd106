// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/lexer.h"

namespace gpushared::ptx {
namespace {

// <cctype> is not used, because PTX does not depend on the locale.
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsNameStart(char c) { return IsLetter(c) || c == '_' || c == '$' || c == '%'; }
bool IsNamePart(char c) { return IsLetter(c) || IsDigit(c) || c == '_' || c == '$'; }
bool IsLongOperator(std::string_view two) {
  if (two.size() < 2) return false;
  const char c = two[0];
  if (two[1] == '=') return c == '<' || c == '>' || c == '=' || c == '!';
  return two[1] == c && (c == '<' || c == '>' || c == '&' || c == '|');
}
bool IsSpace(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

}  // namespace

void Lexer::NewLine(std::size_t next) {
  ++line_;
  line_start_ = next;
}

bool Lexer::SkipSpace() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (IsSpace(c)) {
      ++at_;
      if (c == '\n') NewLine(at_);
    } else if (text_.substr(at_, 2) == "//") {
      at_ = text_.find('\n', at_);
      if (at_ == std::string_view::npos) at_ = text_.size();
    } else if (text_.substr(at_, 2) == "/*") {
      const std::size_t end = text_.find("*/", at_ + 2);
      if (end == std::string_view::npos) return false;
      for (; at_ < end + 2; ++at_) {
        if (text_[at_] == '\n') NewLine(at_ + 1);
      }
    } else {
      break;
    }
  }
  return true;
}

std::size_t Lexer::ScanNumber(std::size_t begin) const {
  // The sign of an exponent is part of decimal numbers only: 0x1e+4 is a sum.
  const bool prefixed =
      text_[begin] == '0' && begin + 1 < text_.size() && IsLetter(text_[begin + 1]);
  std::size_t end = begin + 1;
  while (end < text_.size()) {
    const char c = text_[end];
    const char next = end + 1 < text_.size() ? text_[end + 1] : '\0';
    const char before = text_[end - 1];
    const bool fraction =
        c == '.' && !prefixed && next != '.' && (!IsNameStart(next) || IsExponent(end + 1));
    const bool exponent_sign =
        (c == '+' || c == '-') && (before == 'e' || before == 'E') && !prefixed && IsDigit(next);
    if (!IsLetter(c) && !IsDigit(c) && c != '_' && !fraction && !exponent_sign) break;
    ++end;
  }
  return end;
}

// Returns whether an exponent such as e3 or E+3 is at `at`.
bool Lexer::IsExponent(std::size_t at) const {
  if (at >= text_.size() || (text_[at] != 'e' && text_[at] != 'E')) return false;
  const bool has_sign = at + 1 < text_.size() && (text_[at + 1] == '+' || text_[at + 1] == '-');
  const std::size_t digit = at + (has_sign ? 2 : 1);
  return digit < text_.size() && IsDigit(text_[digit]);
}

// Returns the end of `.5` or `.5e-3`; for a modifier such as `.2d`, the end of its digits.
std::size_t Lexer::ScanFraction(std::size_t begin) const {
  std::size_t end = begin + 1;
  while (end < text_.size() && IsDigit(text_[end])) ++end;
  if (!IsExponent(end)) return end;
  end += 2;
  while (end < text_.size() && IsDigit(text_[end])) ++end;
  return end;
}

std::size_t Lexer::ScanDotted(std::size_t begin) const {
  std::size_t end = begin + 1;
  while (end < text_.size()) {
    if (IsNamePart(text_[end])) {
      ++end;
    } else if (text_.substr(end, 2) == "::" && end + 2 < text_.size() &&
               IsNamePart(text_[end + 2])) {
      end += 2;
    } else {
      break;
    }
  }
  return end;
}

std::size_t Lexer::ScanString(std::size_t begin) const {
  for (std::size_t at = begin + 1; at < text_.size(); ++at) {
    if (text_[at] == '\n') break;
    if (text_[at] == '"') return at + 1;
    if (text_[at] == '\\') ++at;
  }
  return std::string_view::npos;
}

Token Lexer::Next() {
  const std::size_t before = at_;
  Token token;
  const bool comment_ends = SkipSpace();
  token.after_space = at_ != before;
  token.position = {line_, static_cast<std::uint32_t>(at_ - line_start_ + 1)};
  if (!comment_ends) {
    token.kind = Token::Kind::kBroken;
    token.text = text_.substr(at_, 2);
    return token;
  }
  if (at_ >= text_.size()) return token;

  const std::size_t begin = at_;
  const char c = text_[begin];
  std::size_t end = begin + 1;
  if (IsNameStart(c)) {
    token.kind = Token::Kind::kIdentifier;
    while (end < text_.size() && IsNamePart(text_[end])) ++end;
  } else if (IsDigit(c)) {
    token.kind = Token::Kind::kNumber;
    end = ScanNumber(begin);
  } else if (c == '.' && end < text_.size() && IsNamePart(text_[end])) {
    token.kind = Token::Kind::kDotted;
    end = ScanDotted(begin);
    const std::size_t number_end = IsDigit(text_[begin + 1]) ? ScanFraction(begin) : begin;
    if (number_end >= end) token.kind = Token::Kind::kNumber, end = number_end;
  } else if (c == '"') {
    end = ScanString(begin);
    token.kind = Token::Kind::kString;
    if (end == std::string_view::npos) {
      token.kind = Token::Kind::kBroken;
      token.text = text_.substr(begin, text_.substr(begin).find('\n'));
      return token;
    }
  } else {
    token.kind = Token::Kind::kPunctuation;
    if (IsLongOperator(text_.substr(begin, 2))) ++end;
  }
  token.text = text_.substr(begin, end - begin);
  at_ = end;
  return token;
}

}  // namespace gpushared::ptx
