// SPDX-License-Identifier: Apache-2.0
#include "common/command_line/nearest.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace gpushared::command_line {
namespace {

constexpr std::size_t kNameBytesMax = 64;  // Longer names are not compared.

// Optimal string alignment distance.
std::size_t Edits(std::string_view from, std::string_view to) {
  const std::size_t width = to.size() + 1;
  std::vector<std::size_t> table((from.size() + 1) * width);
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& {
    return table[i * width + j];
  };
  for (std::size_t i = 0; i <= from.size(); ++i) at(i, 0) = i;
  for (std::size_t j = 0; j <= to.size(); ++j) at(0, j) = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = at(i - 1, j - 1) + (from[i - 1] == to[j - 1] ? 0 : 1);
      at(i, j) = std::min({replaced, at(i - 1, j) + 1, at(i, j - 1) + 1});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return at(from.size(), to.size());
}

}  // namespace

std::string_view Nearest(std::string_view asked, std::span<const std::string_view> known) {
  if (asked.empty() || asked.size() > kNameBytesMax) return {};
  std::string_view nearest;
  std::size_t fewest = std::max<std::size_t>(1, asked.size() / 3) + 1;
  for (const std::string_view name : known) {
    const std::size_t edits = Edits(asked, name);
    if (edits >= fewest || edits >= name.size()) continue;
    fewest = edits;
    nearest = name;
  }
  return nearest;
}

std::string DidYouMean(std::string_view asked, std::span<const std::string_view> known) {
  const std::string_view nearest = Nearest(asked, known);
  return nearest.empty() ? "" : "; did you mean '" + std::string(nearest) + "'?";
}

}  // namespace gpushared::command_line
