// SPDX-License-Identifier: Apache-2.0
// PTX text to Module. The text may come from anyone.

#ifndef GPUSHARED_SERVER_PTX_TEXT_PARSER_H_
#define GPUSHARED_SERVER_PTX_TEXT_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gpushared/result.h"

#include "server/ptx/text/module.h"

namespace gpushared::ptx {

// Beyond these the text is refused with kLimitExceeded. Together they bound a parsed
// module to about 1 GiB; nvcc writes about 5 bytes per token and 45 per statement.
inline constexpr std::size_t kTextBytesMax = std::size_t{64} << 20;
inline constexpr std::size_t kTokensMax = std::size_t{8} << 20;
inline constexpr std::size_t kStatementsMax = std::size_t{1} << 20;  // All functions together.
inline constexpr std::uint32_t kScopeDepthMax = 64;                  // { } inside a function.
inline constexpr std::uint32_t kOperandDepthMax = 8;                 // {{...}} inside an operand.
inline constexpr std::uint32_t kExtentsMax = 8;                      // Dimensions of an array.
inline constexpr std::uint64_t kVariableBytesMax = std::uint64_t{1} << 40;
inline constexpr std::uint32_t kRegisterFamilyMax = 1u << 24;  // N of %r<N>.

// Reads to the end of the text or to its first NUL. Instructions and directives it does
// not know are kept; .loc, .file, .section and the option of .target that promises them
// (debug information) are dropped. Errors are kInvalidArgument (or kLimitExceeded):
// "ptx: line L column C: ..., near 'token'".
Result<Module> Parse(std::string_view text);

// Results and parameters of ".callprototype (.param .b32 _) _ (.param .b64 _);", the text of a
// directive: a function without a name and a body.
Result<Function> ParsePrototype(std::string_view directive_text);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_TEXT_PARSER_H_
