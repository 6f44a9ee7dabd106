// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/copy_units.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

namespace gpushared::device {
namespace {

// A rectangle of device memory.
struct Rectangle {
  std::uint64_t address = 0;
  std::uint64_t width_bytes = 0, height = 0, pitch_bytes = 0;
};

Status CheckRectangle(const Rectangle& rectangle, const AddressRange& range, const char* what) {
  if (rectangle.height > 1 && rectangle.pitch_bytes < rectangle.width_bytes) {
    return {StatusCode::kInvalidArgument,
            std::string(what) + " refused: pitch of " + std::to_string(rectangle.pitch_bytes) +
                " bytes, rows of " + std::to_string(rectangle.width_bytes) + " bytes"};
  }
  if (rectangle.width_bytes == 0 || rectangle.height == 0) return {};
  // One division instead of a product that might wrap.
  const std::uint64_t gaps = rectangle.height - 1;
  const std::uint64_t reach_max = range.bytes() - std::min(range.bytes(), rectangle.width_bytes);
  const bool fits = gaps == 0 || rectangle.pitch_bytes <= reach_max / gaps;
  if (!fits ||
      !range.IsMapped(rectangle.address, gaps * rectangle.pitch_bytes + rectangle.width_bytes)) {
    return {StatusCode::kInvalidArgument,
            std::string(what) + " refused: " + std::to_string(rectangle.height) + " rows of " +
                std::to_string(rectangle.width_bytes) + " bytes at offset " +
                std::to_string(rectangle.address - range.base()) + " leave the mapped " +
                std::to_string(range.mapped_bytes()) + " bytes"};
  }
  return {};
}

// Where unit `unit` lies inside a rectangle cut into pieces, row by row.
struct Piece {
  std::uint64_t row = 0;
  std::uint64_t column_bytes = 0;
  std::uint64_t bytes = 0;
};

Piece PieceOf(std::uint64_t unit, std::uint64_t width_bytes) {
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

Status CheckCopy(const CopyWork& work, const AddressRange& range) {
  using Direction = CopyWork::Direction;
  if (work.direction != Direction::kDeviceToDevice && work.host == nullptr &&
      CopyUnits(work.width_bytes, work.height) != 0) {
    return {StatusCode::kInvalidArgument, "copy refused: it has no host memory"};
  }
  if (work.direction != Direction::kDeviceToHost) {
    Status checked = CheckRectangle({.address = work.destination,
                                     .width_bytes = work.width_bytes,
                                     .height = work.height,
                                     .pitch_bytes = work.destination_pitch_bytes},
                                    range, "copy destination");
    if (!checked.ok()) return checked;
  }
  if (work.direction != Direction::kHostToDevice) {
    return CheckRectangle({.address = work.source,
                           .width_bytes = work.width_bytes,
                           .height = work.height,
                           .pitch_bytes = work.source_pitch_bytes},
                          range, "copy source");
  }
  return {};
}

Status CheckFill(const FillWork& work, const AddressRange& range) {
  const std::uint64_t element = work.element_bytes;
  if (element != 1 && element != 2 && element != 4) {
    return {StatusCode::kInvalidArgument, "fill refused: elements of " + std::to_string(element) +
                                              " bytes, 1, 2 and 4 are possible"};
  }
  const bool pitched = work.height > 1;
  if (work.destination % element != 0 || work.width_bytes % element != 0 ||
      (pitched && work.pitch_bytes % element != 0)) {
    return {StatusCode::kInvalidArgument,
            "fill refused: address, width or pitch is no multiple of the element's " +
                std::to_string(element) + " bytes"};
  }
  return CheckRectangle({.address = work.destination,
                         .width_bytes = work.width_bytes,
                         .height = work.height,
                         .pitch_bytes = work.pitch_bytes},
                        range, "fill");
}

void RunCopyUnit(const CopyWork& work, std::uint64_t unit) {
  const Piece piece = PieceOf(unit, work.width_bytes);
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
      // The two may overlap; what the overlap then holds is the client's problem.
      std::memmove(Pointer(work.destination + to), Pointer(work.source + from), piece.bytes);
      return;
  }
}

void RunFillUnit(const FillWork& work, std::uint64_t unit) {
  const Piece piece = PieceOf(unit, work.width_bytes);
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
