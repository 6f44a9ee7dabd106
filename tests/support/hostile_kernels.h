// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SUPPORT_HOSTILE_KERNELS_H_
#define GPUSHARED_TESTS_SUPPORT_HOSTILE_KERNELS_H_

#include <cstdint>
#include <span>
#include <string>

#include "gpushared/client.h"

namespace gpushared::testing {

// A kernel that means harm, and how it ends as the passes make it. No byte of anybody else's has
// changed then.
struct HostileKernel {
  enum class End : std::uint8_t { kRuns, kFaults, kIsEnded, kIsRefused };
  const char* name;
  const char* body;
  const char* module = "";
  End fenced = End::kRuns, contained = End::kRuns;
  const char* says = "";  // In the error, contained.
};

// kIsEnded: by a limit of the time that kernels of the client's class may run.
std::span<const HostileKernel> HostileKernels();

// How it has ended, on a stream of its own; `target` is memory of somebody else.
Status RunHostile(const Client& client, const HostileKernel& kernel, DeviceAddress target);
// What is wrong about that, or "".
std::string WhyNotItsEnd(const HostileKernel& kernel, bool is_contained, const Status& status);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_HOSTILE_KERNELS_H_
