// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_COMMON_PTX_TEXT_LIMITS_H_
#define GPUSHARED_COMMON_PTX_TEXT_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace gpushared::ptx {

// Larger texts are rejected with kLimitExceeded. Together the limits below keep a parsed module
// within about 1 GiB; nvcc writes about 5 bytes per token and 45 per statement.
inline constexpr std::size_t kTextBytesMax = std::size_t{64} << 20;
inline constexpr std::size_t kTokensMax = std::size_t{8} << 20;
inline constexpr std::size_t kStatementsMax = std::size_t{1} << 20;  // Total of all functions.
inline constexpr std::uint32_t kScopeDepthMax = 64;   // Nested { } inside a function.
inline constexpr std::uint32_t kOperandDepthMax = 8;  // Nested {{...}} inside an operand.
inline constexpr std::uint32_t kExtentsMax = 8;       // Dimensions of an array.
inline constexpr std::uint64_t kVariableBytesMax = std::uint64_t{1} << 40;
inline constexpr std::uint32_t kRegisterFamilyMax = 1u << 24;  // N of %r<N>.

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_LIMITS_H_
