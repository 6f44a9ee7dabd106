// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_REACH_H_
#define GPUSHARED_SERVER_DEVICE_REACH_H_

#include <array>
#include <cstddef>
#include <span>

#include "server/device/device.h"

namespace gpushared::device {

// Access set of a command: device memory that it may access, in a few pieces. May include more than
// the command accesses, but never less.
//
// Thread-compatible; does not allocate.
class Reach {
 public:
  static constexpr std::size_t kPiecesMax = 8;

  // An empty access set.
  Reach() = default;
  // Returns an access set of all memory of the client.
  static Reach Everything() {
    Reach reach;
    reach.is_everything_ = true;
    return reach;
  }

  // If there is no free entry for another piece, merges the two closest ones.
  void Add(const MemoryPiece& piece);

  bool is_everything() const { return is_everything_; }
  // Sorted by address, without overlaps. Unused if is_everything().
  std::span<const MemoryPiece> pieces() const { return std::span(pieces_).first(count_); }

 private:
  void Join(std::size_t left);  // Merges piece `left` with its successor.

  bool is_everything_ = false;
  std::size_t count_ = 0;
  std::array<MemoryPiece, kPiecesMax + 1> pieces_;
};

// Return the access sets of copies and fills, which extend from the first byte of the first row to
// the last byte of the last row. For launches and graphs, return LaunchWork::reach or
// GraphWork::reach; if that is null, they may access everything.
Reach GetReach(const CopyWork& work);
Reach GetReach(const FillWork& work);
Reach GetReach(const LaunchWork& work);
Reach GetReach(const GraphWork& work);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_REACH_H_
