// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_MEMORY_PIECES_H_
#define GPUSHARED_SERVER_DEVICE_MEMORY_PIECES_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpushared/mutex.h"

#include "server/device/device.h"

namespace gpushared::device {

// The piece that holds the address; null when none does. `pieces`: by address, none overlapping.
inline const MemoryPiece* PieceAt(std::span<const MemoryPiece> pieces, std::uint64_t address) {
  const auto behind = std::ranges::upper_bound(pieces, address, {}, &MemoryPiece::base);
  if (behind == pieces.begin()) return nullptr;
  const MemoryPiece& piece = *(behind - 1);
  return address - piece.base < piece.bytes ? &piece : nullptr;
}

// What the variables take, by address. Two are in one piece if at most `gap_bytes_max` lie between
// them.
std::vector<MemoryPiece> GetPieces(std::span<const VariableInfo> variables,
                                   std::uint64_t gap_bytes_max);

// Memory of one client beside the part that it maps from the bottom: blocks of its modules, and
// mapped chunks. A reader takes all that there is at one moment, and keeps it as long as it likes.
//
// Thread-safe.
class MemoryPieces {
 public:
  using List = std::vector<MemoryPiece>;  // By address, none overlapping.

  void Add(const MemoryPiece& piece) {
    Change([&](List& list) {
      list.insert(std::ranges::upper_bound(list, piece.base, {}, &MemoryPiece::base), piece);
    });
  }
  // The one that begins there.
  void Remove(std::uint64_t base) {
    Change([&](List& list) {
      std::erase_if(list, [&](const MemoryPiece& piece) { return piece.base == base; });
    });
  }
  std::shared_ptr<const List> Now() const {
    const MutexLock lock(mutex_);
    return list_;
  }
  // Whether pieces without a gap between them hold all of [address, address + bytes).
  bool Contains(std::uint64_t address, std::uint64_t bytes) const {
    const std::shared_ptr<const List> list = Now();
    for (;;) {
      const MemoryPiece* const piece = PieceAt(*list, address);
      if (piece == nullptr) return false;
      const std::uint64_t rest = piece->bytes - (address - piece->base);
      if (bytes <= rest) return true;
      address += rest;
      bytes -= rest;
    }
  }

 private:
  // Makes a new list aside: readers wait for an exchange of pointers only.
  template <typename Edit>
  void Change(Edit edit) {
    const MutexLock changing(changing_);
    auto next = std::make_shared<List>(*Now());
    edit(*next);
    const MutexLock lock(mutex_);
    list_ = std::move(next);
  }

  Mutex changing_;  // One change at a time.
  mutable Mutex mutex_;
  std::shared_ptr<const List> list_ GPUSHARED_GUARDED_BY(mutex_) = std::make_shared<const List>();
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_MEMORY_PIECES_H_
