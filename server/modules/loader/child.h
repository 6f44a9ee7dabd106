// SPDX-License-Identifier: Apache-2.0
// `gpushared --loader` and its requests.

#ifndef GPUSHARED_SERVER_MODULES_LOADER_CHILD_H_
#define GPUSHARED_SERVER_MODULES_LOADER_CHILD_H_

#include <cstdint>

#include "server/device/device.h"

namespace gpushared::loader {

// Descriptor of the loader's channel, a SOCK_SEQPACKET socket.
inline constexpr int kLoaderChannelFd = 3;

// Unit of reported limits.
inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// A job, sent with two descriptors: the sealed image, and an empty memory file for the result. The
// answer is the child's process ID, or a negative errno.
struct JobRequest {
  device::ModuleRecipe recipe;
  std::uint64_t image_bytes = 0;
  std::uint64_t memory_bytes = 0;  // Limit of the child's memory in addition to what it inherits.
  std::uint64_t output_bytes = 0;
  std::uint32_t seconds = 0;   // Limit of the child's CPU time.
  std::uint32_t niceness = 0;  // Added to the worker's niceness.
};

// Header of a result, followed by a message or by the output of PrepareModule.
struct ResultHeader {
  static constexpr std::uint32_t kDone = 0x600d10ad;
  std::uint32_t done = 0;
  std::uint32_t code = 0;  // StatusCode of the result.
  std::uint64_t bytes = 0;
};

// Serves a worker until its channel is closed. Never reads a client's bytes: each job is done by a
// separate child, whose parent is the worker. A child can read its image, write its result, and do
// nothing else. Returns the exit code.
int RunLoader();

}  // namespace gpushared::loader

#endif  // GPUSHARED_SERVER_MODULES_LOADER_CHILD_H_
