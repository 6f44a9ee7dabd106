// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/passes/fault_place.h"

#include <array>
#include <string_view>

#include "common/ptx/text/quoted_name.h"

namespace gpushared::ptx {
namespace {

std::string_view Describe(FaultPlace::Kind kind) {
  switch (kind) {
    case FaultPlace::Kind::kTrap:
      return "trap";
    case FaultPlace::Kind::kBreakpoint:
      return "breakpoint";
    case FaultPlace::Kind::kAssertion:
      return "failed assertion";
    case FaultPlace::Kind::kStopped:
      return "stopped by the server";
  }
  return "fault of an unknown kind";
}

std::string Describe(const std::array<std::uint32_t, 3>& index) {
  return "(" + std::to_string(index[0]) + "," + std::to_string(index[1]) + "," +
         std::to_string(index[2]) + ")";
}

}  // namespace

FaultDescription DescribeFault(std::span<const FaultPlace> places, const FaultRecord& record) {
  if (record.place == 0 || record.place > places.size()) {
    return {FaultKind::kLaunchFailure,
            "fault at a place that is not in the module: " + std::to_string(record.place)};
  }
  const FaultPlace& place = places[record.place - 1];
  const bool has_block = record.block[0] != kNoBlockIndex;
  return {
      place.kind == FaultPlace::Kind::kAssertion ? FaultKind::kAssert : FaultKind::kLaunchFailure,
      std::string(Describe(place.kind)) + " at line " + std::to_string(place.line) + " of " +
          QuotedName(place.function) + " [" +
          (has_block ? "block " + Describe(record.block) + " " : "") + "thread " +
          Describe(record.thread) + "]",
      place.kind == FaultPlace::Kind::kStopped};
}

}  // namespace gpushared::ptx
