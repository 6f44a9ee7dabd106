// SPDX-License-Identifier: Apache-2.0
// What simulated clients run: sequences of kernels with measured durations.

#ifndef GPUSHARED_SCHEDULER_SIM_JOB_H_
#define GPUSHARED_SCHEDULER_SIM_JOB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "scheduler/types.h"

namespace gpushared::simulation {

// A launch, seen as blocks of equal time; or a copy, seen as pieces, of which its engine moves one
// after the other.
struct Kernel {
  // Of a launch: what it is bound by, as far as its profile tells.
  enum class Kind : std::uint8_t { kUnknown, kCompute, kMemory, kCopyToDevice, kCopyToHost };
  std::uint32_t blocks = 1;
  scheduler::Duration block_time{};
  Kind kind = Kind::kUnknown;
  // A multiprocessor has room for as many of its blocks at a time: what registers and shared memory
  // leave. Profiles do not tell, and count multiprocessors that are full as one block.
  std::uint32_t blocks_per_multiprocessor = 1;
  // The client's own time before it: from the end of the kernel before, or from the begin of the
  // request, until it is submitted. Empty: it is submitted together with the one before.
  std::optional<scheduler::Duration> after = {};
  // The production predictor's key. 0: the time is predicted exactly.
  std::uint64_t cost_key = 0;
  // Machine code has no form that stops between blocks.
  bool is_uncut = false;
  // Of a graph's first node: how many nodes the client launches as one command. 0: no such node.
  std::uint32_t graph_nodes = 0;
  bool follows_in_graph = false;  // One of the other nodes.
};

// Of one kernel, as many as hardware holds (compute capability 9.0).
inline constexpr std::uint32_t kBlocksPerMultiprocessorMax = 32;

bool IsCopy(const Kernel& kernel);

// One request of an inference server, or one step of a training job.
struct Job {
  std::string name;
  std::vector<Kernel> kernels;
};

// The kernel or copy alone on a device of that many multiprocessors, without the cost of launching
// it.
scheduler::Duration SoloTime(const Kernel& kernel, std::uint32_t multiprocessors);

struct ProfileOptions {
  // Of the GPU on which the profile was taken; a V100 has 80.
  std::uint32_t multiprocessors = 80;
  // Blocks this many times as long, and as many times fewer: what a profile does not tell.
  std::uint32_t block_stretch = 1;
};

// A profile in the Orion format: a header, then one line per kernel of one pass: name (which may
// contain commas), class (1 compute, 0 memory, -1 unknown), memory footprint, multiprocessors
// needed, duration in ns. A kernel that needs more multiprocessors than there are runs in waves:
// its blocks take duration ÷ ceil(needed ÷ multiprocessors). Rejects with path and line.
Result<Job> ReadOrionProfile(const std::string& path, const ProfileOptions& options);

// Reads one part or several, joined with '+', which run one after the other:
//   even:KERNELS:KERNEL_US:BLOCK_US          equal kernels, whole waves of blocks of that time.
//   uncut:KERNELS:KERNEL_US:BLOCK_US         the same as machine code, which nobody can stop.
//   graph:KERNELS:KERNEL_US:BLOCK_US         the same as nodes of a graph, which is one command.
//   grid:KERNELS:BLOCKS:BLOCK_US:BLOCKS_PER_MULTIPROCESSOR.
//   in:US, out:US                            a copy to the device or from it that takes so long.
//   anything else                            the path of a profile.
Result<Job> ReadJob(const std::string& text, const ProfileOptions& options);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_JOB_H_
