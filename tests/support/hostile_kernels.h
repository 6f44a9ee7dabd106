// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SUPPORT_HOSTILE_KERNELS_H_
#define GPUSHARED_TESTS_SUPPORT_HOSTILE_KERNELS_H_

#include <cstdint>
#include <span>
#include <string>

#include "gpushared/client.h"

namespace gpushared::testing {

// The barrier between a kernel and other clients, and its strength.
enum class HostilePlace : std::uint8_t {
  kFenced,  // A kernel that faults or is ended destroys the context.
  kContained,
};

// A malicious kernel, and its end after the passes transformed it. It must not have changed or read
// a byte of another client.
struct HostileKernel {
  enum class End : std::uint8_t { kRuns, kFaults, kIsEnded, kIsRejected };
  const char* name;
  const char* body;
  const char* module = "";
  End fenced = End::kRuns, contained = End::kRuns;
  const char* says = "";  // In the error message, if contained.
};

// kIsEnded: by a limit on the run time of kernels of the client's class.
std::span<const HostileKernel> HostileKernels();

// Set in every byte of other clients, and in no byte that a hostile kernel writes.
inline constexpr std::uint8_t kOthersBit = 0x80;

struct HostileOutcome {
  Status status;              // How it ended, on a separate stream.
  bool found_others = false;  // A byte of another client is in the memory that it could write.
};
// `target`: memory of another client.
HostileOutcome RunHostile(const Client& client, const HostileKernel& kernel, DeviceAddress target);
// Returns why its end is wrong, or "".
std::string WhyNotItsEnd(const HostileKernel& kernel, HostilePlace place, const Status& status);
// Runs a harmless kernel on a separate stream.
Status RunHarmless(const Client& client);
// Leaves bytes with kOthersBit in the shared and local memory of a GPU, for other clients to find
// there.
Status LeaveResidue(const Client& client);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_HOSTILE_KERNELS_H_
