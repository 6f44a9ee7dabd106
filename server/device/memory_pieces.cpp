// SPDX-License-Identifier: Apache-2.0
#include "server/device/memory_pieces.h"

namespace gpushared::device {

std::vector<MemoryPiece> GetPieces(std::span<const VariableInfo> variables,
                                   std::uint64_t gap_bytes_max) {
  std::vector<MemoryPiece> all;
  for (const VariableInfo& variable : variables) {
    if (variable.bytes > 0) all.push_back({.base = variable.address, .bytes = variable.bytes});
  }
  std::ranges::sort(all, {}, &MemoryPiece::base);
  std::vector<MemoryPiece> pieces;
  for (const MemoryPiece& next : all) {
    const std::uint64_t end = pieces.empty() ? 0 : pieces.back().base + pieces.back().bytes;
    if (pieces.empty() || (next.base > end && next.base - end > gap_bytes_max)) {
      pieces.push_back(next);
    } else {
      pieces.back().bytes = std::max(end, next.base + next.bytes) - pieces.back().base;
    }
  }
  return pieces;
}

}  // namespace gpushared::device
