// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_SIM_GPU_DEVICE_H_
#define GPUSHARED_SCHEDULER_SIM_GPU_DEVICE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/sim/job.h"
#include "scheduler/types.h"

namespace gpushared::simulation {

// Costs of hardware and driver. Sources: for launch_call, the `field` reproduction of LithOS (a
// native null launch takes 2.1 us); for graph_call and graph_gap, the NVIDIA blogs "Constant Time
// Launch for Straight-Line CUDA Graphs" (2.5 us) and "Getting Started with CUDA Graphs"; for
// gate_relay, a measurement with the server as relay: p99 of the time from a high client's first
// call to a low one's last launch (the median is below 1 us, p90 6.1 us). For context_switch:
// saving the 44 MB of a context takes at most 40 us on an A100 (GPreempt,
// ATC'25; the paper reports about 100 us for a whole preemption). The other figures are round ones
// of the same order of magnitude, equal for all policies and baselines.
//
// Contention for caches and memory bandwidth: while blocks of other streams run on a fraction p of
// the multiprocessors, a kernel takes 1 + contention × p² times as long. The fraction is squared,
// because memory requests queue longer the more of them there are; a linear rule with the same p99
// of the high class slows the low class more than published. The factor is calibrated against the
// MPS rows of Tally's artifact (docs/simulation.md). It applies to kernels whose profile states
// their class; others, such as those of recorded profiles, are modelled without contention.
inline constexpr double kContention = 4;

struct GpuCosts {
  scheduler::Duration launch_call{2'100};   // CPU time of the launching thread.
  scheduler::Duration launch_delay{4'000};  // From the end of that call to the first block.
  scheduler::Duration kernel_gap{1'000};    // Time between dependent kernels of a stream.
  scheduler::Duration graph_call{2'500};    // CPU time to launch all nodes of a graph.
  scheduler::Duration graph_gap{500};       // Replaces kernel_gap inside a graph.
  scheduler::Duration notice{3'000};        // From the end of a kernel to its detection by the CPU.
  scheduler::Duration stop_flag{2'000};     // From a stop until blocks that start detect it.
  scheduler::Duration drain{5'000};         // Time of blocks that start, detect the stop and end.
  scheduler::Duration claim{1'000};         // Added to each block of a preemptible kernel.
  scheduler::Duration context_switch{50'000};
  scheduler::Duration gate_relay{9'000};  // Time until a gated client detects a change of its gate.
  double contention = kContention;
  // Observed values of launch_delay, kernel_gap and notice, all equally likely, because a thread
  // may have to wait for a core. If empty, the values above are exact.
  std::vector<scheduler::Duration> launch_delays = {}, kernel_gaps = {}, notices = {};
  std::uint32_t seed = 1;  // Seed of the draws from the observed values.
};

// Returns the CPU time of the call that launches the kernel. The call for a graph's first node
// launches all nodes.
inline scheduler::Duration CallFor(const Kernel& kernel, const GpuCosts& costs) {
  if (kernel.follows_in_graph) return {};
  return kernel.graph_nodes > 0 ? costs.graph_call : costs.launch_call;
}

// Order among streams of the same priority.
enum class StreamOrder : std::uint8_t {
  kEligible,   // By the time at which a kernel could begin: the streams of a GPU take turns.
  kSubmitted,  // By submission, as on the cpu device, where the gap between two kernels of a
               // stream occupies the executor thread, so that no later work begins in it.
};

// Work items of one stream run in order of submission.
struct Work {
  std::uint64_t id = 0;
  std::size_t stream = 0;  // Must be small, because it is an index into a table.
  Kernel kernel;
  std::uint32_t first_block = 0;
  std::uint8_t priority = 0;  // Larger values are served first.
  bool stoppable = false;
};

struct Finished {
  std::uint64_t id = 0;
  // Completed blocks, from block 0 on: all of them unless the work was stopped.
  std::uint32_t blocks_done = 0;
};

// A GPU on a virtual clock. The caller advances from one next_event() to the next, and may submit
// and stop at the time to which it advanced last.
//
// Thread-compatible.
class GpuDevice {
 public:
  using Duration = scheduler::Duration;
  using TimePoint = scheduler::TimePoint;

  virtual ~GpuDevice() = default;
  // Submits the work. The launching thread's call ends at `called`, which is not in the past.
  virtual void Submit(const Work& work, TimePoint called) = 0;
  // Ends stoppable work before its next block; other work runs to its end.
  virtual void RequestStop(std::uint64_t id, TimePoint now) = 0;
  virtual std::optional<TimePoint> next_event() const = 0;
  // Appends to `finished` the work whose end the server has noticed by `now`.
  virtual void Advance(TimePoint now, std::vector<Finished>& finished) = 0;
};

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_GPU_DEVICE_H_
