// SPDX-License-Identifier: Apache-2.0
// What the configuration's text must satisfy before a TOML parser may have it, and what is said
// where the parser's own message names a rule of its grammar instead of the mistake.

#ifndef GPUSHARED_SERVER_CONFIG_CONFIG_SYNTAX_H_
#define GPUSHARED_SERVER_CONFIG_CONFIG_SYNTAX_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "gpushared/result.h"

namespace gpushared::server {

inline constexpr std::size_t kConfigFileBytesMax = std::size_t{1} << 20;

// Reads at most kConfigFileBytesMax. The rejection begins with "config file PATH ".
Result<std::string> ReadConfigFile(const std::string& path);

// Rejects text whose tables or lists are nested more deeply than any setting needs: the parser's
// tree is freed recursively, so that its depth is a depth of the stack. `source` begins the
// message.
Status CheckNesting(std::string_view text, std::string_view source);

// "policy = fair" and curly quotes, in which the parser sees a misspelt false or no type at all:
// where the value begins, and a sentence with the line as it should be.
struct UnquotedValue {
  std::size_t column = 0;  // From 1.
  std::string why;
};
std::optional<UnquotedValue> FindUnquotedValue(std::string_view line);

// Line `number`, from 1; empty beyond the last.
std::string_view GetLine(std::string_view text, std::size_t number);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CONFIG_CONFIG_SYNTAX_H_
