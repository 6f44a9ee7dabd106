// SPDX-License-Identifier: Apache-2.0
// Work of simulated clients: sequences of kernels with measured durations.

#ifndef GPUSHARED_SCHEDULER_SIM_JOB_H_
#define GPUSHARED_SCHEDULER_SIM_JOB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "scheduler/types.h"

namespace gpushared::simulation {

// A launch, modelled as blocks of equal time; or a copy, modelled as pieces that a copy engine
// moves one after the other.
struct Kernel {
  // The resource that bounds a launch, if its profile states one, or the direction of a copy.
  enum class Kind : std::uint8_t { kUnknown, kCompute, kMemory, kCopyToDevice, kCopyToHost };
  std::uint32_t blocks = 1;
  scheduler::Duration block_time{};
  Kind kind = Kind::kUnknown;
  // Number of blocks that fit onto a multiprocessor together, given their registers and shared
  // memory. Profiles do not state this number, and count a full multiprocessor as one block.
  std::uint32_t blocks_per_multiprocessor = 1;
  // Time that the host needs before it submits the kernel: from the end of the previous kernel, or
  // from the start of the request. Empty if both kernels are submitted together.
  std::optional<scheduler::Duration> after = {};
  // Key of the production predictor. If 0, the time is predicted exactly.
  std::uint64_t cost_key = 0;
  // Set for machine code, which has no preemptible form.
  bool is_nonpreemptible = false;
  // For a graph's first node, the number of nodes that the client launches as one command; 0 for
  // all other kernels.
  std::uint32_t graph_nodes = 0;
  bool follows_in_graph = false;  // Whether this is one of the other nodes of a graph.
};

// Hardware limit (compute capability 9.0).
inline constexpr std::uint32_t kBlocksPerMultiprocessorMax = 32;

bool IsCopy(const Kernel& kernel);

// A request of an inference server, or a step of a training job.
struct Job {
  std::string name;
  std::vector<Kernel> kernels;
};

// Returns the time of the kernel or copy alone on a device with that many multiprocessors, without
// launch costs.
scheduler::Duration SoloTime(const Kernel& kernel, std::uint32_t multiprocessors);

struct ProfileOptions {
  // Multiprocessors of the GPU on which the profile was taken; a V100 has 80.
  std::uint32_t multiprocessors = 80;
  // Factor by which blocks are made longer and fewer. Needed because a profile does not state their
  // length.
  std::uint32_t block_stretch = 1;
};

// Reads a profile in the Orion format: a header, then one line per kernel of one pass: name (which
// may contain commas), class (1 compute, 0 memory, -1 unknown), memory footprint, multiprocessors
// needed, duration in ns. If a kernel needs more multiprocessors than the GPU has, it runs in
// waves: its blocks take duration ÷ ceil(needed ÷ multiprocessors). Errors name the path and the
// line.
Result<Job> ReadOrionProfile(const std::string& path, const ProfileOptions& options);

// Reads one or more parts, joined with '+', which run one after the other:
//   * even:KERNELS:KERNEL_US:BLOCK_US: equal kernels, each of whole waves of BLOCK_US.
//   * nonpreemptible:KERNELS:KERNEL_US:BLOCK_US: the same kernels as machine code.
//   * graph:KERNELS:KERNEL_US:BLOCK_US: the same kernels as nodes of a graph, which is one command.
//   * grid:KERNELS:BLOCKS:BLOCK_US:BLOCKS_PER_MULTIPROCESSOR: equal kernels of any size.
//   * in:US, out:US: a copy to or from the device that takes this long alone.
//   * Anything else is the path of a profile.
Result<Job> ReadJob(const std::string& text, const ProfileOptions& options);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_JOB_H_
