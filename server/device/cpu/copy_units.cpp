// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/copy_units.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace gpushared::device {
namespace {

// Position of a unit in a rectangle, which is divided into pieces row by row.
struct Piece {
  std::uint64_t row = 0;
  std::uint64_t column_bytes = 0;
  std::uint64_t bytes = 0;
};

Piece GetPiece(std::uint64_t unit, std::uint64_t width_bytes) {
  const std::uint64_t per_row = CopyUnits(width_bytes, 1);
  Piece piece;
  piece.row = unit / per_row;
  piece.column_bytes = unit % per_row * kCopyPieceBytes;
  piece.bytes = std::min(kCopyPieceBytes, width_bytes - piece.column_bytes);
  return piece;
}

// On this device an address is a pointer.
std::byte* Pointer(std::uint64_t address) {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}

template <typename Element>
void FillElements(std::byte* destination, std::uint32_t value, std::uint64_t bytes) {
  std::fill_n(reinterpret_cast<Element*>(destination), bytes / sizeof(Element),
              static_cast<Element>(value));
}

}  // namespace

void RunCopyUnit(const CopyWork& work, std::uint64_t unit) {
  const Piece piece = GetPiece(unit, work.width_bytes);
  const std::uint64_t to = piece.row * work.destination_pitch_bytes + piece.column_bytes;
  const std::uint64_t from = piece.row * work.source_pitch_bytes + piece.column_bytes;
  switch (work.direction) {
    case CopyWork::Direction::kHostToDevice:
      std::memcpy(Pointer(work.destination + to), work.host + from, piece.bytes);
      return;
    case CopyWork::Direction::kDeviceToHost:
      std::memcpy(work.host + to, Pointer(work.source + from), piece.bytes);
      return;
    case CopyWork::Direction::kDeviceToDevice:
      // The ranges may overlap; the contents of the overlap are then undefined.
      std::memmove(Pointer(work.destination + to), Pointer(work.source + from), piece.bytes);
      return;
  }
}

void RunFillUnit(const FillWork& work, std::uint64_t unit) {
  const Piece piece = GetPiece(unit, work.width_bytes);
  std::byte* const to =
      Pointer(work.destination + piece.row * work.pitch_bytes + piece.column_bytes);
  switch (work.element_bytes) {
    case 1:
      FillElements<std::uint8_t>(to, work.value, piece.bytes);
      return;
    case 2:
      FillElements<std::uint16_t>(to, work.value, piece.bytes);
      return;
    default:
      FillElements<std::uint32_t>(to, work.value, piece.bytes);
      return;
  }
}

}  // namespace gpushared::device
