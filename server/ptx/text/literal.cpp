// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/text/literal.h"

#include <bit>
#include <charconv>
#include <system_error>

namespace gpushared::ptx {
namespace {

std::optional<std::uint64_t> ParseDigits(std::string_view digits, int base) {
  std::uint64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, base);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<Literal> ParseBits(std::string_view digits, std::uint32_t bytes) {
  if (digits.size() != std::size_t{2} * bytes) return std::nullopt;
  const auto bits = ParseDigits(digits, 16);
  if (!bits) return std::nullopt;
  return Literal{.is_float = true, .bits = *bits, .float_bytes = bytes};
}

std::optional<Literal> ParseInteger(std::string_view text) {
  if (text.ends_with('U')) text.remove_suffix(1);
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    base = 16;
    text.remove_prefix(2);
  } else if (text.starts_with("0b") || text.starts_with("0B")) {
    base = 2;
    text.remove_prefix(2);
  } else if (text.size() > 1 && text.starts_with('0')) {
    base = 8;
  }
  const auto value = ParseDigits(text, base);
  if (!value) return std::nullopt;
  return Literal{.bits = *value};
}

}  // namespace

std::optional<Literal> ParseLiteral(std::string_view text) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  if (text.starts_with("0f") || text.starts_with("0F")) return ParseBits(text.substr(2), 4);
  if (text.starts_with("0d") || text.starts_with("0D")) return ParseBits(text.substr(2), 8);
  const bool is_hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  if (!is_hexadecimal && text.find_first_of(".eE") != std::string_view::npos) {
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end) return std::nullopt;
    return Literal{.is_float = true, .bits = std::bit_cast<std::uint64_t>(value), .float_bytes = 8};
  }
  return ParseInteger(text);
}

}  // namespace gpushared::ptx
