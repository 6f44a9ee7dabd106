// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_FAULT_KIND_H_
#define GPUSHARED_FAULT_KIND_H_

#include <cstdint>
#include <string_view>

namespace gpushared {

// Reason why a kernel was ended (StatusCode::kKernelFault). The numbers are those of CUDA's
// CUresult; they travel on the wire and equal gpushared_fault_t in the C API.
enum class FaultKind : std::uint16_t {
  kNone = 0,                   // No fault, or a kind that the device does not report.
  kIllegalAddress = 700,       // An access outside the memory of the client.
  kLaunchTimeout = 702,        // A run longer than the time limit of the client's class.
  kAssert = 710,               // A failed assertion.
  kHardwareStackError = 714,   // Nested calls exceeded the stack.
  kIllegalInstruction = 715,   // An operand or a use that the instruction does not allow.
  kMisalignedAddress = 716,    // An address that is not a multiple of the access size.
  kInvalidAddressSpace = 717,  // An address of a space that the instruction cannot access.
  kInvalidPc = 718,            // A call whose target is not a function.
  kLaunchFailure = 719,        // A trap or any other fault.
};

// Returns the enumerator without its `k`, for messages: "IllegalAddress". "Unknown" for other
// values.
std::string_view FaultKindName(FaultKind kind) noexcept;

}  // namespace gpushared

#endif  // GPUSHARED_FAULT_KIND_H_
