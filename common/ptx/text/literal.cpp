// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/literal.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <system_error>

namespace gpushared::ptx {
namespace {

int GetDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 16;
}

// Like ptxas, keeps the low 64 bits of longer numbers.
std::optional<std::uint64_t> ParseDigits(std::string_view digits, int base) {
  if (digits.empty()) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : digits) {
    const int digit = GetDigit(c);
    if (digit >= base) return std::nullopt;
    value = value * static_cast<std::uint64_t>(base) + static_cast<std::uint64_t>(digit);
  }
  return value;
}

std::optional<Literal> ParseBits(std::string_view digits, std::uint32_t bytes) {
  if (digits.size() != std::size_t{2} * bytes) return std::nullopt;
  const auto bits = ParseDigits(digits, 16);
  if (!bits) return std::nullopt;
  return Literal{.is_float = true, .bits = *bits, .float_bytes = bytes};
}

std::optional<Literal> ParseInteger(std::string_view text) {
  const bool has_u = text.ends_with('U');
  if (has_u) text.remove_suffix(1);
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    base = 16;
    text.remove_prefix(2);
  } else if (text.starts_with("0b") || text.starts_with("0B")) {
    base = 2;
    text.remove_prefix(2);
    if (text.size() > 64) return std::nullopt;  // ptxas reports an overflow.
  } else if (text.size() > 1 && text.starts_with('0')) {
    base = 8;
  }
  const auto value = ParseDigits(text, base);
  if (!value) return std::nullopt;
  return Literal{.bits = *value, .has_u = has_u};
}

}  // namespace

std::optional<Literal> ParseLiteral(std::string_view text) {
  if (text.empty() || ((text[0] < '0' || text[0] > '9') && text[0] != '.')) return std::nullopt;
  if (text.starts_with("0f") || text.starts_with("0F")) return ParseBits(text.substr(2), 4);
  if (text.starts_with("0d") || text.starts_with("0D")) return ParseBits(text.substr(2), 8);
  const bool is_hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  if (!is_hexadecimal && text.find_first_of(".eE") != std::string_view::npos) {
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end) return std::nullopt;
    // ptxas rejects subnormal numbers with the same message as too large ones.
    if (std::fpclassify(value) == FP_SUBNORMAL) return std::nullopt;
    return Literal{.is_float = true, .bits = std::bit_cast<std::uint64_t>(value), .float_bytes = 8};
  }
  return ParseInteger(text);
}

}  // namespace gpushared::ptx
