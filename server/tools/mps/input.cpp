// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mps/input.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace gpushared::server::mps {
namespace {

Status Rejected(std::string_view what, std::string_view asked, const std::string& allowed) {
  return {StatusCode::kInvalidArgument, std::string(what) + " rejected: asked for '" +
                                            std::string(asked) + "', allowed: " + allowed};
}

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

}  // namespace

std::optional<std::string> NextLine(std::istream& input) {
  std::string line;
  char c = 0;
  bool any = false;
  while (input.get(c)) {
    any = true;
    if (c == '\n') break;
    if (line.size() <= kLineBytesMax) line += c;
  }
  if (!any) return std::nullopt;
  return line;
}

Result<std::vector<std::string>> Words(std::string_view line) {
  if (line.size() > kLineBytesMax) {
    return Status(StatusCode::kInvalidArgument,
                  "line rejected: it is longer than " + std::to_string(kLineBytesMax) + " bytes");
  }
  std::vector<std::string> words;
  bool in_word = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (!IsBlank(c) && (c < '!' || c > '~')) {
      return Status(StatusCode::kInvalidArgument,
                    "line rejected: byte " + std::to_string(i + 1) + " is " +
                        std::to_string(static_cast<unsigned char>(c)) +
                        ", allowed: printable ASCII characters, blanks and tabs");
    }
    if (!IsBlank(c) && !in_word) words.emplace_back();
    in_word = !IsBlank(c);
    if (in_word) words.back() += c;
  }
  return words;
}

Result<std::uint64_t> Number(std::string_view word, std::string_view what, std::uint64_t least,
                             std::uint64_t most, std::string_view unit) {
  std::uint64_t value = 0;
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most) {
    return Rejected(what, word,
                    std::to_string(least) + " to " + std::to_string(most) + std::string(unit));
  }
  return value;
}

Result<double> Percentage(std::string_view word) {
  double value = 0;
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value, std::chars_format::fixed);
  // Written as a positive condition, because every comparison with nan is false.
  const bool is_one = error == std::errc() && stop == end && value > 0 && value <= 100;
  if (!is_one) return Rejected("active thread percentage", word, "above 0 and at most 100");
  return value;
}

Result<std::uint64_t> MemoryLimit(std::string_view word) {
  // Accepts "2G" as well as "2g" and "2GB".
  std::string_view number = word;
  if (number.ends_with('B')) number.remove_suffix(1);
  const char unit =
      number.empty() ? '\0'
                     : static_cast<char>(std::toupper(static_cast<unsigned char>(number.back())));
  if (!number.empty()) number.remove_suffix(1);
  const std::uint64_t per_gib = unit == 'M' ? 1024 : 1;
  const Result<std::uint64_t> count = Number(number, "memory limit", 1, kMemoryMax * per_gib);
  if ((unit != 'G' && unit != 'M') || !count.ok()) {
    return Rejected("memory limit", word,
                    "a number and G or M, at most " + std::to_string(kMemoryMax) + "G");
  }
  return *count << (unit == 'G' ? 30U : 20U);
}

}  // namespace gpushared::server::mps
