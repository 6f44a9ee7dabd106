// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_DRAIN_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_DRAIN_H_

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "server/device/cuda/channel.h"
#include "server/device/cuda/idle_windows.h"

namespace gpushared::device::cuda {

// Empties a device for an idle window. First, all channels but the highest stop issuing work, and
// preemptible launches are stopped. When that work has ended, the highest channels wait as well.
// Thus the high class is only delayed by its own running work and by the driver calls.
//
// Other work must not be delayed for long by a kernel that does not end. Therefore a drain that
// runs out of patience is abandoned, all work continues, and the next drain starts when everything
// that was then in flight has ended: a long kernel is waited for outside of the driver and costs
// other clients one drain. The patience doubles with each abandoned drain, so that concurrent long
// kernels cannot delay calls indefinitely, and is twice the duration of a drain that succeeded.
// IdleWindows limits the share of time that drains may take.
//
// Confined to the device thread.
class Drain {
 public:
  using Channels = std::vector<std::unique_ptr<Channel>>;
  static constexpr std::chrono::nanoseconds kPatienceMin = std::chrono::milliseconds(1);
  static constexpr std::chrono::nanoseconds kPatienceMax = std::chrono::seconds(1);

  // Both must outlive the drain.
  Drain(IdleWindows& windows, Channels& channels) : idle_windows_(windows), channels_(channels) {}

  // Called after each poll of the channels, which detects ended work and issues the work after it.
  void Review();

 private:
  bool HasBlockers() const;
  void Begin();
  void GiveUp(IdleWindows::TimePoint now);

  IdleWindows& idle_windows_;
  Channels& channels_;
  std::chrono::nanoseconds patience_ = kPatienceMin;
  // Start of the current drain; empty while there is none.
  std::optional<IdleWindows::TimePoint> began_;
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_DRAIN_H_
