// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SUPPORT_HOSTILE_KERNELS_H_
#define GPUSHARED_TESTS_SUPPORT_HOSTILE_KERNELS_H_

#include <cstdint>
#include <span>
#include <string>

#include "gpushared/client.h"

namespace gpushared::testing {

// How a kernel is kept from other clients' memory.
enum class HostilePlace : std::uint8_t {
  kFenced,  // A kernel that faults or is ended also ends the context.
  kContained,
};

// A malicious kernel, and how it must end after the passes have transformed it. It must not change
// or read a byte of another client.
struct HostileKernel {
  enum class End : std::uint8_t { kRuns, kFaults, kIsEnded, kIsRejected };
  const char* name;
  const char* body;
  const char* module = "";
  End fenced = End::kRuns, contained = End::kRuns;
  const char* says = "";  // Part of the error message if the kernel is contained.
};

// Returns all hostile kernels. Those with kIsEnded need a limit on the run time of kernels of the
// client's class.
std::span<const HostileKernel> HostileKernels();

// A bit that is set in every byte of other clients, and in no byte that a hostile kernel writes.
inline constexpr std::uint8_t kOthersBit = 0x80;

struct HostileOutcome {
  Status status;  // Status of the kernel's stream, which no other work uses.
  // Whether the memory that the kernel could write contains a byte of another client.
  bool found_others = false;
};
// Runs the kernel, which attacks the other client's memory at `target`.
HostileOutcome RunHostile(const Client& client, const HostileKernel& kernel, DeviceAddress target);
// Returns why the kernel should not have ended with this status, or "".
std::string WhyNotItsEnd(const HostileKernel& kernel, HostilePlace place, const Status& status);
// Runs a harmless kernel on a separate stream.
Status RunHarmless(const Client& client);
// Leaves bytes with kOthersBit in the shared and local memory of a GPU, for other clients to find
// there.
Status LeaveResidue(const Client& client);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_HOSTILE_KERNELS_H_
