// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_REACH_H_
#define GPUSHARED_SERVER_DEVICE_REACH_H_

#include <array>
#include <cstddef>
#include <span>

#include "server/device/device.h"

namespace gpushared::device {

// Device memory that a command may touch, in few pieces: perhaps more than it does touch, never
// less.
//
// Thread-compatible; allocates nothing.
class Reach {
 public:
  static constexpr std::size_t kPiecesMax = 8;

  // Nothing yet.
  Reach() = default;
  // Whatever its client has.
  static Reach Everything() {
    Reach reach;
    reach.is_everything_ = true;
    return reach;
  }

  // Where there is no place for a further piece, the two that lie closest become one.
  void Add(const MemoryPiece& piece);

  bool is_everything() const { return is_everything_; }
  // By address, none overlapping. Not of everything.
  std::span<const MemoryPiece> pieces() const { return std::span(pieces_).first(count_); }

 private:
  void Join(std::size_t left);  // It and the one behind it.

  bool is_everything_ = false;
  std::size_t count_ = 0;
  std::array<MemoryPiece, kPiecesMax + 1> pieces_;
};

// Copies and fills say what they touch: from the first byte of their first row to the last one of
// their last row. Launches, alone and in graphs, carry theirs, or may touch everything.
Reach GetReach(const CopyWork& work);
Reach GetReach(const FillWork& work);
Reach GetReach(const LaunchWork& work);
Reach GetReach(const GraphWork& work);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_REACH_H_
