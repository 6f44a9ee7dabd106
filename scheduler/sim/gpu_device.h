// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_SIM_GPU_DEVICE_H_
#define GPUSHARED_SCHEDULER_SIM_GPU_DEVICE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/sim/job.h"
#include "scheduler/types.h"

namespace gpushared::simulation {

// What the hardware and driver cost. Sources: native null launch 2.1 us, `field` reproduction of
// LithOS; the two of graphs: NVIDIA blogs "Constant Time Launch for Straight-Line CUDA Graphs"
// (2.5 us) and "Getting Started with CUDA Graphs". The rest are round figures of the same order,
// the same for every policy and baseline.
struct GpuCosts {
  scheduler::Duration launch_call{2'100};   // CPU time of the thread that launches.
  scheduler::Duration launch_delay{4'000};  // From the end of that call to the first block.
  scheduler::Duration kernel_gap{1'000};    // Between kernels of a stream that wait for each other.
  scheduler::Duration graph_call{2'500};    // CPU time to launch all nodes of a graph.
  scheduler::Duration graph_gap{500};       // In place of kernel_gap, inside of a graph.
  scheduler::Duration notice{3'000};        // From the end of a kernel until a CPU knows it.
  scheduler::Duration stop_flag{2'000};     // Until blocks that start see a stop.
  scheduler::Duration drain{5'000};         // For blocks that start only to see the stop.
  scheduler::Duration claim{1'000};         // Per block of a kernel that can be stopped.
  scheduler::Duration context_switch{50'000};
  // Times that launch_delay, kernel_gap and notice were seen to take, one as likely as another,
  // where a thread may wait for a core. Empty: they always take as long as above.
  std::vector<scheduler::Duration> launch_delays = {}, kernel_gaps = {}, notices = {};
  std::uint32_t seed = 1;  // Draws from these begin with it.
};

// CPU time of the call that launches it: of a graph the first node's call launches all of them.
inline scheduler::Duration CallFor(const Kernel& kernel, const GpuCosts& costs) {
  if (kernel.follows_in_graph) return {};
  return kernel.graph_nodes > 0 ? costs.graph_call : costs.launch_call;
}

// It says whose turn it is among streams with the same priority.
enum class StreamOrder : std::uint8_t {
  kEligible,   // Whose kernel could begin first: the streams of a GPU take turns.
  kSubmitted,  // Whose kernel was submitted first, as on the cpu device. There the gap between two
               // kernels of a stream is time of the thread, in which nothing younger begins.
};

// Works of one stream run one after the other, in the order of their submission.
struct Work {
  std::uint64_t id = 0;
  std::size_t stream = 0;  // Small: streams are a table.
  Kernel kernel;
  std::uint32_t first_block = 0;
  std::uint8_t priority = 0;  // Larger is served first.
  bool stoppable = false;
};

struct Finished {
  std::uint64_t id = 0;
  std::uint32_t blocks_done = 0;  // Counted from block 0; all of them unless it was stopped.
};

// A GPU on a virtual clock. The caller goes from next_event() to next_event(), and may submit
// and stop at the time to which it advanced last.
//
// Thread-compatible.
class GpuDevice {
 public:
  using Duration = scheduler::Duration;
  using TimePoint = scheduler::TimePoint;

  virtual ~GpuDevice() = default;
  // The launching thread has made its call at `called`, which is not before now.
  virtual void Submit(const Work& work, TimePoint called) = 0;
  // Ends a stoppable work before its next block; others run to their end.
  virtual void RequestStop(std::uint64_t id, TimePoint now) = 0;
  virtual std::optional<TimePoint> next_event() const = 0;
  // Appends what is known to have finished by `now`.
  virtual void Advance(TimePoint now, std::vector<Finished>& finished) = 0;
};

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_GPU_DEVICE_H_
