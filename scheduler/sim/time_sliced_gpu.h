// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_SIM_TIME_SLICED_GPU_H_
#define GPUSHARED_SCHEDULER_SIM_TIME_SLICED_GPU_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "scheduler/sim/gpu_device.h"

namespace gpushared::simulation {

// Models a context per stream, as a driver treats several processes without MPS. Contexts have the
// whole GPU in turn, for one slice while another context waits. At the end of a slice the context's
// work is saved, and the work resumes in the context's next slice. Copies wait for their context's
// slice as kernels do, which is a simplification. With fixed shares, each of the first
// `fixed_contexts` contexts has its slices from time 0 on, even if it does not use them.
class TimeSlicedGpu final : public GpuDevice {
 public:
  TimeSlicedGpu(std::uint32_t multiprocessors, const GpuCosts& costs, Duration slice,
                std::size_t fixed_contexts = 0)
      : multiprocessors_(multiprocessors),
        costs_(costs),
        slice_(slice),
        fixed_contexts_(fixed_contexts),
        contexts_(fixed_contexts) {}

  void Submit(const Work& work, TimePoint called) override;
  // No work is stoppable under time slicing.
  void RequestStop(std::uint64_t, TimePoint) override {}
  std::optional<TimePoint> next_event() const override;
  void Advance(TimePoint now, std::vector<Finished>& finished) override;

 private:
  struct Item {
    Work work;
    Duration left{};
    TimePoint ready;
  };
  struct Context {
    std::deque<Item> items;
  };
  struct Notice {
    TimePoint at;
    Finished finished;
  };

  bool HasReady(const Context& context, TimePoint now) const {
    return !context.items.empty() && context.items.front().ready <= now;
  }
  // Returns the next context after the active one that has work now; empty if there is none.
  std::optional<std::size_t> NextReady(TimePoint now) const;
  // Returns the time of the next event of the contexts, without notices.
  std::optional<TimePoint> next_turn() const;
  void Step(TimePoint now);
  // Chooses the context that has the slice, and runs it.
  void Choose(TimePoint now);
  void ChooseFixed(TimePoint now);
  void Begin(std::size_t number, TimePoint now);

  const std::uint32_t multiprocessors_;
  const GpuCosts costs_;
  const Duration slice_;
  const std::size_t fixed_contexts_;  // If 0, unused shares are lent to others.
  std::vector<Context> contexts_;
  std::deque<Notice> notices_;  // Sorted by time.
  std::size_t active_ = 0;
  TimePoint slice_end_{};
  // Start of the active context's front; in the future during a context switch.
  TimePoint running_since_{};
  bool is_running_ = false;
};

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_TIME_SLICED_GPU_H_
