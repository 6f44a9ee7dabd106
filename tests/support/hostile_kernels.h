// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SUPPORT_HOSTILE_KERNELS_H_
#define GPUSHARED_TESTS_SUPPORT_HOSTILE_KERNELS_H_

#include <cstdint>
#include <span>
#include <string>

#include "gpushared/client.h"

namespace gpushared::testing {

// The barrier between a kernel and others, and its strength.
enum class HostilePlace : std::uint8_t {
  kFenced,  // A kernel that faults or is ended takes the context with it.
  kContained,
};

// A kernel that means harm, and how it ends as the passes make it. No byte of anybody else's has
// changed then, and none was seen.
struct HostileKernel {
  enum class End : std::uint8_t { kRuns, kFaults, kIsEnded, kIsRejected };
  const char* name;
  const char* body;
  const char* module = "";
  End fenced = End::kRuns, contained = End::kRuns;
  const char* says = "";  // In the error, contained.
};

// kIsEnded: by a limit of the time that kernels of the client's class may run.
std::span<const HostileKernel> HostileKernels();

// Set in every byte of others, and in none that a hostile kernel writes.
inline constexpr std::uint8_t kOthersBit = 0x80;

struct HostileOutcome {
  Status status;              // How it has ended, on a stream of its own.
  bool found_others = false;  // A byte of others is in the memory that it could write.
};
// `target`: memory of somebody else.
HostileOutcome RunHostile(const Client& client, const HostileKernel& kernel, DeviceAddress target);
// Why its end is wrong, or "".
std::string WhyNotItsEnd(const HostileKernel& kernel, HostilePlace place, const Status& status);
// One that harms nobody, on a stream of its own.
Status RunHarmless(const Client& client);
// Bytes with kOthersBit in the shared and local memory of a GPU, for others to find there.
Status LeaveResidue(const Client& client);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_HOSTILE_KERNELS_H_
