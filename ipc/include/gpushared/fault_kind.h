// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_FAULT_KIND_H_
#define GPUSHARED_FAULT_KIND_H_

#include <cstdint>
#include <string_view>

namespace gpushared {

// What a kernel did that ended it (StatusCode::kKernelFault). The numbers are those of CUDA's
// CUresult. They travel on the wire and equal gpushared_fault_t in the C API.
enum class FaultKind : std::uint16_t {
  kNone = 0,                   // No kernel fault, or of a kind that the device does not tell.
  kIllegalAddress = 700,       // An access outside its memory.
  kLaunchTimeout = 702,        // It ran longer than the server lets its class; it was ended.
  kAssert = 710,               // A failed assertion.
  kHardwareStackError = 714,   // More nested calls than the stack holds.
  kIllegalInstruction = 715,   // An operand or a use that the instruction forbids.
  kMisalignedAddress = 716,    // An address that the access's size does not divide.
  kInvalidAddressSpace = 717,  // An address of a space that the instruction cannot access.
  kInvalidPc = 718,            // A call of what is no function.
  kLaunchFailure = 719,        // A trap, and everything else.
};

// The enumerator without its `k`, for messages: "IllegalAddress". "Unknown" for other values.
std::string_view FaultKindName(FaultKind kind) noexcept;

}  // namespace gpushared

#endif  // GPUSHARED_FAULT_KIND_H_
