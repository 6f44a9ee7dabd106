// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_COMMON_PTX_TEXT_LITERAL_H_
#define GPUSHARED_COMMON_PTX_TEXT_LITERAL_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace gpushared::ptx {

// Value of a PTX number without sign.
struct Literal {
  bool is_float = false;
  // The integer, or the bits of the float: 32 bits after 0f, otherwise 64.
  std::uint64_t bits = 0;
  std::uint32_t float_bytes = 0;  // 4 or 8; 0 for integers.
  bool has_u = false;             // Integer with a U suffix.
};

// Parses a number: 12, 12U, 017, 0x1F, 0b101, 0f3F800000, 0d3FF0000000000000, 1.5, .5, 5., 1e-3.
// Returns nothing for any other `text`, for a float outside the range of normal doubles, and for
// more than 64 binary digits.
std::optional<Literal> ParseLiteral(std::string_view text);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_LITERAL_H_
