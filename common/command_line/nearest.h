// SPDX-License-Identifier: Apache-2.0
// Suggests names for a mistyped one.

#ifndef GPUSHARED_COMMON_COMMAND_LINE_NEAREST_H_
#define GPUSHARED_COMMON_COMMAND_LINE_NEAREST_H_

#include <span>
#include <string>
#include <string_view>

namespace gpushared::command_line {

// Returns the element of `known` with the smallest edit distance to `asked`, where an edit inserts,
// removes or replaces a character or swaps two adjacent ones. Empty if it takes more than a third
// of the characters, because such a name is a different word.
std::string_view Nearest(std::string_view asked, std::span<const std::string_view> known);

// "; did you mean 'policy'?", or nothing.
std::string DidYouMean(std::string_view asked, std::span<const std::string_view> known);

}  // namespace gpushared::command_line

#endif  // GPUSHARED_COMMON_COMMAND_LINE_NEAREST_H_
