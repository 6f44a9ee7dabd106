// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PTX_PASSES_FAULT_PLACE_H_
#define GPUSHARED_SERVER_PTX_PASSES_FAULT_PLACE_H_

#include <cstdint>
#include <span>
#include <string>

#include "gpushared/fault_kind.h"

#include "server/ptx/passes/kernel_words.h"

namespace gpushared::ptx {

// A place where a contained kernel may end early.
struct FaultPlace {
  enum class Kind : std::uint8_t { kTrap, kBreakpoint, kAssertion, kStopped };
  Kind kind = Kind::kTrap;
  std::string function;  // A kernel, or a .func that it calls.
  std::uint32_t line = 0;
};

struct FaultDescription {
  FaultKind kind = FaultKind::kNone;
  std::string message;   // "trap at line 12 of 'k' [block (0,0,0) thread (1,0,0)]"
  bool is_stop = false;  // The server stopped the kernel.
};
// Returns the message for a record. A record with an invalid place, which no kernel of the module
// can write, is reported as such. `places`: Fenced::places.
FaultDescription DescribeFault(std::span<const FaultPlace> places, const FaultRecord& record);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_FAULT_PLACE_H_
