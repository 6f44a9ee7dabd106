// SPDX-License-Identifier: Apache-2.0
// Serialization of the parts that prepared modules of all devices share (flat.h).

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

// Returns kInvalidArgument. `what` names the part of the bytes that is invalid in a prepared
// module.
Status WrongModule(const std::string& what);

bool IsInside(std::uint64_t begin, std::uint64_t bytes, std::uint64_t end);

// Initial contents of an area of variables, before the first kernel runs. All other bytes are zero.
struct VariableContents {
  struct Piece {
    std::uint64_t offset = 0;
    std::vector<std::byte> bytes;
  };
  std::vector<Piece> pieces;
  // Offsets and targets are relative to the start of the area.
  std::vector<ptx::ModuleLayout::AddressSlot> slots;

  std::uint64_t HostBytes() const;
};

// A layout and its offset in the area.
struct LayoutPart {
  const ptx::ModuleLayout& layout;
  std::uint64_t offset = 0;
};
void PutContents(std::span<const LayoutPart> parts, FlatWriter& to);
// Reads contents that fit an area of `area_bytes`. Fails with kInvalidArgument if they do not, and
// with kLimitExceeded if they are larger than any text allows.
Result<VariableContents> TakeContents(FlatReader& from, std::uint64_t area_bytes);

// Variables of the client. The address of each is its offset in the area, or kElsewhere if the
// variable is in no part.
inline constexpr std::uint64_t kElsewhere = ~std::uint64_t{0};
void PutVariables(const std::vector<VariableInfo>& declared, std::span<const LayoutPart> parts,
                  FlatWriter& to);
// Reads variables. Fails with kInvalidArgument for an offset outside of an area of `area_bytes`,
// and with kLimitExceeded above kVariablesPerModuleMax.
Result<std::vector<VariableInfo>> TakeVariables(FlatReader& from, std::uint64_t area_bytes);

void PutFaultPlaces(const std::vector<ptx::FaultPlace>& places, FlatWriter& to);
Result<std::vector<ptx::FaultPlace>> TakeFaultPlaces(FlatReader& from);
std::uint64_t HostBytes(const std::vector<ptx::FaultPlace>& places);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_FLAT_MODULE_H_
