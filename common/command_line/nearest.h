// SPDX-License-Identifier: Apache-2.0
// Suggestions for mistyped names.

#ifndef GPUSHARED_COMMON_COMMAND_LINE_NEAREST_H_
#define GPUSHARED_COMMON_COMMAND_LINE_NEAREST_H_

#include <span>
#include <string>
#include <string_view>

namespace gpushared::command_line {

// Returns the name in `known` with the fewest edits from `asked`, where one edit inserts, removes
// or replaces a character or swaps two adjacent ones. Returns an empty string if there are more
// edits than a third of the characters of `asked`, or more than one edit of a short `asked`,
// because such a name is likely a different word.
std::string_view Nearest(std::string_view asked, std::span<const std::string_view> known);

// Returns "; did you mean 'policy'?", or an empty string.
std::string DidYouMean(std::string_view asked, std::span<const std::string_view> known);

}  // namespace gpushared::command_line

#endif  // GPUSHARED_COMMON_COMMAND_LINE_NEAREST_H_
