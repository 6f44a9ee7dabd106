// SPDX-License-Identifier: Apache-2.0
// `gpushared --loader`, and its orders.

#ifndef GPUSHARED_SERVER_MODULES_LOADER_CHILD_H_
#define GPUSHARED_SERVER_MODULES_LOADER_CHILD_H_

#include <cstdint>

#include "server/device/device.h"

namespace gpushared::loader {

// Where the loader finds its channel, a SOCK_SEQPACKET socket.
inline constexpr int kLoaderChannelFd = 3;

// Bounds are told in this unit.
inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// One job, with two descriptors: the image, which nobody may change any more, and the empty memory
// file that takes the result. The answer is the child's process ID, or a negative errno.
struct JobRequest {
  device::ModuleRecipe recipe;
  std::uint64_t image_bytes = 0;
  std::uint64_t memory_bytes = 0;  // The child may take so much beside its parent's memory.
  std::uint64_t output_bytes = 0;
  std::uint32_t seconds = 0;   // Processor time.
  std::uint32_t niceness = 0;  // Added to the worker's.
};

// What a result begins with; behind it a text, or what PrepareModule wrote.
struct ResultHeader {
  static constexpr std::uint32_t kDone = 0x600d10ad;
  std::uint32_t done = 0;
  std::uint32_t code = 0;  // A StatusCode.
  std::uint64_t bytes = 0;
};

// Serves a worker until its channel closes. Never sees a client's bytes: a child of its own does
// each job. The worker is that child's parent. A child can read its image, write its result, and do
// nothing else. Returns the exit code.
int RunLoader();

}  // namespace gpushared::loader

#endif  // GPUSHARED_SERVER_MODULES_LOADER_CHILD_H_
