// SPDX-License-Identifier: Apache-2.0
#include "server/device/flat_module.h"

#include <algorithm>

#include "gpushared/limits.h"

#include "server/device/cpu/executor/flat_code.h"
#include "server/device/memory_budget.h"

namespace gpushared::device {
namespace {

// Initial contents are written in pieces of this size. Zero pieces are omitted, because a short
// text can declare large variables.
constexpr std::uint64_t kPieceBytes = 4096;
// Limit for all pieces of a module together; no text contains more.
constexpr std::uint64_t kInitialBytesMax = std::uint64_t{64} << 20;
// Marks the end of the pieces.
constexpr std::uint64_t kNoPiece = ~std::uint64_t{0};

}  // namespace

Status WrongModule(const std::string& what) {
  return {StatusCode::kInvalidArgument, "prepared module is invalid: " + what};
}

bool IsInside(std::uint64_t begin, std::uint64_t bytes, std::uint64_t end) {
  return bytes <= end && begin <= end - bytes;
}

std::uint64_t VariableContents::HostBytes() const {
  std::uint64_t bytes = slots.size() * sizeof slots[0];
  for (const Piece& piece : pieces) bytes += sizeof piece + piece.bytes.size();
  return bytes;
}

void PutContents(std::span<const LayoutPart> parts, FlatWriter& to) {
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  for (const LayoutPart& part : parts) {
    const std::span<const std::byte> initial = part.layout.initial;
    for (std::size_t at = 0; at < initial.size(); at += kPieceBytes) {
      const auto piece =
          initial.subspan(at, std::min<std::size_t>(kPieceBytes, initial.size() - at));
      if (std::ranges::all_of(piece, is_zero)) continue;
      to.Put(part.offset + at);
      to.PutAll(piece);
    }
  }
  to.Put(kNoPiece);
  std::vector<ptx::ModuleLayout::AddressSlot> slots;
  for (const LayoutPart& part : parts) {
    for (ptx::ModuleLayout::AddressSlot slot : part.layout.address_slots) {
      slot.offset += part.offset;
      slot.target_offset += part.offset;
      slots.push_back(slot);
    }
  }
  to.PutAll(slots);
}

Result<VariableContents> TakeContents(FlatReader& from, std::uint64_t area_bytes) {
  VariableContents contents;
  std::uint64_t bytes = 0;
  for (auto offset = from.Take<std::uint64_t>(); offset != kNoPiece && from.ok();
       offset = from.Take<std::uint64_t>()) {
    from.Hold(sizeof(VariableContents::Piece));
    contents.pieces.push_back({.offset = offset, .bytes = from.TakeAll<std::byte>()});
    const VariableContents::Piece& piece = contents.pieces.back();
    bytes += piece.bytes.size();
    if (piece.bytes.empty() || !IsInside(offset, piece.bytes.size(), area_bytes)) {
      return WrongModule("bytes of a variable");
    }
    if (bytes > kInitialBytesMax) {
      return Status(
          StatusCode::kLimitExceeded,
          "module rejected: its variables begin with more than " + Mebibytes(kInitialBytesMax));
    }
  }
  contents.slots = from.TakeAll<ptx::ModuleLayout::AddressSlot>();
  const auto fits = [&](const ptx::ModuleLayout::AddressSlot& slot) {
    return slot.bytes <= 8 && slot.shift < 64 && IsInside(slot.offset, slot.bytes, area_bytes);
  };
  if (!std::ranges::all_of(contents.slots, fits)) return WrongModule("an address in a variable");
  return contents;
}

void PutVariables(const std::vector<VariableInfo>& declared, std::span<const LayoutPart> parts,
                  FlatWriter& to) {
  std::unordered_map<std::string_view, std::uint64_t> offsets;
  for (const LayoutPart& part : parts) {
    for (const ptx::VariablePlacement& placed : part.layout.variables) {
      offsets.emplace(placed.name, part.offset + placed.offset);
    }
  }
  to.PutCount(declared.size());
  for (const VariableInfo& variable : declared) {
    const auto found = offsets.find(variable.name);
    to.PutText(variable.name);
    to.Put(found == offsets.end() ? kElsewhere : found->second);
    to.Put(variable.bytes);
    to.Put(static_cast<std::uint32_t>(variable.space));
  }
}

Result<std::vector<VariableInfo>> TakeVariables(FlatReader& from, std::uint64_t area_bytes) {
  std::vector<VariableInfo> variables(from.TakeCount(28, sizeof(VariableInfo)));
  if (variables.size() > kVariablesPerModuleMax) {
    return Status(StatusCode::kLimitExceeded,
                  "module rejected: it has " + std::to_string(variables.size()) +
                      " variables, allowed: " + std::to_string(kVariablesPerModuleMax));
  }
  for (VariableInfo& variable : variables) {
    variable.name = from.TakeText();
    variable.address = from.Take<std::uint64_t>();
    variable.bytes = from.Take<std::uint64_t>();
    const auto space = from.Take<std::uint32_t>();
    const bool is_placed = variable.address != kElsewhere;
    if (space > static_cast<std::uint32_t>(VariableInfo::Space::kConstant) ||
        !executor::IsPlainText(variable.name) ||
        (is_placed && !IsInside(variable.address, variable.bytes, area_bytes))) {
      return WrongModule("a variable");
    }
    variable.space = static_cast<VariableInfo::Space>(space);
  }
  return variables;
}

void PutFaultPlaces(const std::vector<ptx::FaultPlace>& places, FlatWriter& to) {
  to.PutCount(places.size());
  for (const ptx::FaultPlace& place : places) {
    to.Put(static_cast<std::uint32_t>(place.kind));
    to.Put(place.line);
    to.PutText(place.function);
  }
}

Result<std::vector<ptx::FaultPlace>> TakeFaultPlaces(FlatReader& from) {
  std::vector<ptx::FaultPlace> places(from.TakeCount(16, sizeof(ptx::FaultPlace)));
  for (ptx::FaultPlace& place : places) {
    const auto kind = from.Take<std::uint32_t>();
    if (kind > static_cast<std::uint32_t>(ptx::FaultPlace::Kind::kStopped)) {
      return WrongModule("a fault");
    }
    place.kind = static_cast<ptx::FaultPlace::Kind>(kind);
    place.line = from.Take<std::uint32_t>();
    place.function = from.TakeText();
    if (!executor::IsPlainText(place.function)) return WrongModule("the name of a function");
  }
  return places;
}

std::uint64_t HostBytes(const std::vector<ptx::FaultPlace>& places) {
  std::uint64_t bytes = 0;
  for (const ptx::FaultPlace& place : places) bytes += sizeof place + place.function.size();
  return bytes;
}

}  // namespace gpushared::device
