// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SIMULATION_GPU_RECORDING_GPU_H_
#define GPUSHARED_TESTS_SIMULATION_GPU_RECORDING_GPU_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/sim/gpu_device.h"

namespace gpushared::simulation {

// A GPU that records submitted work, which the test ends.
class RecordingGpu final : public GpuDevice {
 public:
  void Submit(const Work& work, TimePoint) override { submitted.push_back(work); }
  void RequestStop(std::uint64_t id, TimePoint) override { stopped.push_back(id); }
  std::optional<TimePoint> next_event() const override { return {}; }
  void Advance(TimePoint, std::vector<Finished>&) override {}

  std::vector<Work> submitted;
  std::vector<std::uint64_t> stopped;
};

}  // namespace gpushared::simulation

#endif  // GPUSHARED_TESTS_SIMULATION_GPU_RECORDING_GPU_H_
