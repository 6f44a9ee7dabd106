// SPDX-License-Identifier: Apache-2.0
#include "server/device/reach.h"

namespace gpushared::device {

namespace {

MemoryPiece RowsOf(std::uint64_t base, std::uint64_t pitch_bytes, std::uint64_t width_bytes,
                   std::uint64_t height) {
  if (width_bytes == 0 || height == 0) return {};
  return {.base = base, .bytes = (height - 1) * pitch_bytes + width_bytes};
}

}  // namespace

Reach ReachOf(const CopyWork& work) {
  using Direction = CopyWork::Direction;
  Reach reach;
  if (work.direction != Direction::kHostToDevice) {
    reach.Add(RowsOf(work.source, work.source_pitch_bytes, work.width_bytes, work.height));
  }
  if (work.direction != Direction::kDeviceToHost) {
    reach.Add(
        RowsOf(work.destination, work.destination_pitch_bytes, work.width_bytes, work.height));
  }
  return reach;
}

Reach ReachOf(const FillWork& work) {
  Reach reach;
  reach.Add(RowsOf(work.destination, work.pitch_bytes, work.width_bytes, work.height));
  return reach;
}

Reach ReachOf(const LaunchWork& work) {
  return work.reach == nullptr ? Reach::Everything() : *work.reach;
}

Reach ReachOf(const GraphWork& work) {
  return work.reach == nullptr ? Reach::Everything() : *work.reach;
}

}  // namespace gpushared::device
