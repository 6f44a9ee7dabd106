// SPDX-License-Identifier: Apache-2.0
#include "server/device/reach.h"

#include <algorithm>

namespace gpushared::device {

namespace {

std::uint64_t GetEnd(const MemoryPiece& piece) { return piece.base + piece.bytes; }

}  // namespace

void Reach::Join(std::size_t left) {
  const std::uint64_t end = std::max(GetEnd(pieces_[left]), GetEnd(pieces_[left + 1]));
  pieces_[left].bytes = end - pieces_[left].base;
  std::copy(pieces_.begin() + static_cast<std::ptrdiff_t>(left) + 2,
            pieces_.begin() + static_cast<std::ptrdiff_t>(count_),
            pieces_.begin() + static_cast<std::ptrdiff_t>(left) + 1);
  --count_;
}

void Reach::Add(const MemoryPiece& piece) {
  if (is_everything_ || piece.bytes == 0) return;
  const auto end = pieces_.begin() + static_cast<std::ptrdiff_t>(count_);
  const auto place = std::upper_bound(
      pieces_.begin(), end, piece,
      [](const MemoryPiece& left, const MemoryPiece& right) { return left.base < right.base; });
  std::copy_backward(place, end, end + 1);
  *place = piece;
  ++count_;
  for (std::size_t left = 0; left + 1 < count_;) {
    if (GetEnd(pieces_[left]) >= pieces_[left + 1].base) {
      Join(left);
    } else {
      ++left;
    }
  }
  if (count_ <= kPiecesMax) return;
  const auto gap = [&](std::size_t left) { return pieces_[left + 1].base - GetEnd(pieces_[left]); };
  std::size_t closest = 0;
  for (std::size_t left = 1; left + 1 < count_; ++left) {
    if (gap(left) < gap(closest)) closest = left;
  }
  Join(closest);
}

}  // namespace gpushared::device
