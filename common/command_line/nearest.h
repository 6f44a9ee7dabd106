// SPDX-License-Identifier: Apache-2.0
// What somebody who mistyped a name may have meant.

#ifndef GPUSHARED_COMMON_COMMAND_LINE_NEAREST_H_
#define GPUSHARED_COMMON_COMMAND_LINE_NEAREST_H_

#include <span>
#include <string>
#include <string_view>

namespace gpushared::command_line {

// The one of `known` that fewest edits turn `asked` into, where one edit inserts, removes or
// replaces a character or swaps two neighbours. Empty if that takes more than a third of the
// characters, because such a name is another word.
std::string_view Nearest(std::string_view asked, std::span<const std::string_view> known);

// "; did you mean 'policy'?", or nothing.
std::string DidYouMean(std::string_view asked, std::span<const std::string_view> known);

}  // namespace gpushared::command_line

#endif  // GPUSHARED_COMMON_COMMAND_LINE_NEAREST_H_
