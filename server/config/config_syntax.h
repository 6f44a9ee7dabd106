// SPDX-License-Identifier: Apache-2.0
// Checks of the configuration's text before it reaches the TOML parser, and better messages for
// cases in which the parser's message names a grammar rule instead of the mistake.

#ifndef GPUSHARED_SERVER_CONFIG_CONFIG_SYNTAX_H_
#define GPUSHARED_SERVER_CONFIG_CONFIG_SYNTAX_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "gpushared/result.h"

namespace gpushared::server {

inline constexpr std::size_t kConfigFileBytesMax = std::size_t{1} << 20;

// Reads at most kConfigFileBytesMax. Error messages begin with "config file PATH ".
Result<std::string> ReadConfigFile(const std::string& path);

// Rejects text whose tables or lists are nested more deeply than any setting needs, because the
// parser's tree is freed recursively and its depth would become the depth of the call stack.
// Messages begin with `source`.
Status CheckNesting(std::string_view text, std::string_view source);

// A value without quotes, as in "policy = fair", or with curly quotes. The parser's message for it
// would speak of a misspelt "false" or of an unknown type. Contains the column where the value
// begins, and a message with the corrected line.
struct UnquotedValue {
  std::size_t column = 0;  // Counted from 1.
  std::string why;
};
std::optional<UnquotedValue> FindUnquotedValue(std::string_view line);

// Returns line `number`, counted from 1; empty after the last line.
std::string_view GetLine(std::string_view text, std::size_t number);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CONFIG_CONFIG_SYNTAX_H_
