// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_COMMON_PTX_TEXT_QUOTED_NAME_H_
#define GPUSHARED_COMMON_PTX_TEXT_QUOTED_NAME_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace gpushared::ptx {

inline constexpr std::size_t kQuotedNameBytesMax = 100;

// Returns a quoted name of a module for messages; long names are truncated.
inline std::string QuotedName(std::string_view name) {
  if (name.size() <= kQuotedNameBytesMax) return "'" + std::string(name) + "'";
  return "'" + std::string(name.substr(0, kQuotedNameBytesMax)) + "...'";
}

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_QUOTED_NAME_H_
