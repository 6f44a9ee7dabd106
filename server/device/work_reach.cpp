// SPDX-License-Identifier: Apache-2.0
#include "server/device/reach.h"

namespace gpushared::device {

namespace {

MemoryPiece GetRows(std::uint64_t base, std::uint64_t pitch_bytes, std::uint64_t width_bytes,
                    std::uint64_t height) {
  if (width_bytes == 0 || height == 0) return {};
  return {.base = base, .bytes = (height - 1) * pitch_bytes + width_bytes};
}

}  // namespace

Reach GetReach(const CopyWork& work) {
  using Direction = CopyWork::Direction;
  Reach reach;
  if (work.direction != Direction::kHostToDevice) {
    reach.Add(GetRows(work.source, work.source_pitch_bytes, work.width_bytes, work.height));
  }
  if (work.direction != Direction::kDeviceToHost) {
    reach.Add(
        GetRows(work.destination, work.destination_pitch_bytes, work.width_bytes, work.height));
  }
  return reach;
}

Reach GetReach(const FillWork& work) {
  Reach reach;
  reach.Add(GetRows(work.destination, work.pitch_bytes, work.width_bytes, work.height));
  return reach;
}

Reach GetReach(const LaunchWork& work) {
  return work.reach == nullptr ? Reach::Everything() : *work.reach;
}

Reach GetReach(const GraphWork& work) {
  return work.reach == nullptr ? Reach::Everything() : *work.reach;
}

}  // namespace gpushared::device
