// SPDX-License-Identifier: Apache-2.0
// What prepared modules of every device have in common, as bytes (flat.h).

#ifndef GPUSHARED_SERVER_DEVICE_FLAT_MODULE_H_
#define GPUSHARED_SERVER_DEVICE_FLAT_MODULE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/device.h"
#include "server/device/flat.h"
#include "server/ptx/analysis/variable_layout.h"
#include "server/ptx/passes/fence.h"

namespace gpushared::device {

// kInvalidArgument: the bytes are not what a prepared module is written as.
Status WrongModule(const std::string& what);

bool IsInside(std::uint64_t begin, std::uint64_t bytes, std::uint64_t end);

// The bytes that variables of an area hold before a kernel first runs. All others are zero.
struct VariableContents {
  struct Piece {
    std::uint64_t offset = 0;
    std::vector<std::byte> bytes;
  };
  std::vector<Piece> pieces;
  // Their offsets and targets count from the start of the area.
  std::vector<ptx::ModuleLayout::AddressSlot> slots;

  std::uint64_t HostBytes() const;
};

// A layout that begins at an offset of the area.
struct LayoutPart {
  const ptx::ModuleLayout& layout;
  std::uint64_t offset = 0;
};
void PutContents(std::span<const LayoutPart> parts, FlatWriter& to);
// All of it lies in an area of `area_bytes`. kInvalidArgument otherwise, kLimitExceeded for pieces
// of more bytes than any text has.
Result<VariableContents> TakeContents(FlatReader& from, std::uint64_t area_bytes);

// Variables of the client. Their addresses are offsets in the area; kElsewhere for one that no part
// holds.
inline constexpr std::uint64_t kElsewhere = ~std::uint64_t{0};
void PutVariables(const std::vector<VariableInfo>& declared, std::span<const LayoutPart> parts,
                  FlatWriter& to);
// Those with an offset lie in an area of `area_bytes`. kInvalidArgument otherwise, kLimitExceeded
// for more than kVariablesPerModuleMax.
Result<std::vector<VariableInfo>> TakeVariables(FlatReader& from, std::uint64_t area_bytes);

void PutFaultPlaces(const std::vector<ptx::FaultPlace>& places, FlatWriter& to);
Result<std::vector<ptx::FaultPlace>> TakeFaultPlaces(FlatReader& from);
std::uint64_t HostBytes(const std::vector<ptx::FaultPlace>& places);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_FLAT_MODULE_H_
