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

// Returns the piece that contains the address, or null. `pieces` is sorted by address and does not
// overlap.
inline const MemoryPiece* PieceAt(std::span<const MemoryPiece> pieces, std::uint64_t address) {
  const auto behind = std::ranges::upper_bound(pieces, address, {}, &MemoryPiece::base);
  if (behind == pieces.begin()) return nullptr;
  const MemoryPiece& piece = *(behind - 1);
  return address - piece.base < piece.bytes ? &piece : nullptr;
}

// Returns the memory occupied by the variables, sorted by address. Variables with at most
// `gap_bytes_max` between them are merged into one piece.
std::vector<MemoryPiece> GetPieces(std::span<const VariableInfo> variables,
                                   std::uint64_t gap_bytes_max);

// Memory of a client other than the mapped part at the start of its range (Space::Resize): blocks
// of its modules, and mapped chunks. Readers get an immutable snapshot and may keep it.
//
// Thread-safe.
class MemoryPieces {
 public:
  using List = std::vector<MemoryPiece>;  // Sorted by address, no overlaps.

  void Add(const MemoryPiece& piece) {
    Change([&](List& list) {
      list.insert(std::ranges::upper_bound(list, piece.base, {}, &MemoryPiece::base), piece);
    });
  }
  // Removes the piece that begins at `base`.
  void Remove(std::uint64_t base) {
    Change([&](List& list) {
      std::erase_if(list, [&](const MemoryPiece& piece) { return piece.base == base; });
    });
  }
  std::shared_ptr<const List> Now() const {
    const MutexLock lock(mutex_);
    return list_;
  }
  // Returns whether adjacent pieces together cover [address, address + bytes).
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
  // Builds the new list separately, so readers wait only while two pointers are exchanged.
  template <typename Edit>
  void Change(Edit edit) {
    const MutexLock changing(changing_);
    auto next = std::make_shared<List>(*Now());
    edit(*next);
    const MutexLock lock(mutex_);
    list_ = std::move(next);
  }

  Mutex changing_;  // Held by one change at a time.
  mutable Mutex mutex_;
  std::shared_ptr<const List> list_ GPUSHARED_GUARDED_BY(mutex_) = std::make_shared<const List>();
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_MEMORY_PIECES_H_
