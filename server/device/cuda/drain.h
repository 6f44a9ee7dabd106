// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_DRAIN_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_DRAIN_H_

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "server/device/cuda/channel.h"
#include "server/device/cuda/quiet_moments.h"

namespace gpushared::device::cuda {

// Empties a device for a quiet moment: first all channels but the highest get nothing more to the
// driver, and what is claimed stops; when their work has ended, the highest ones wait as well. So
// the high class is held back for its own running work and the calls alone.
//
// Other work than what has to end must not wait for long. So a drain that has not come to its end
// after some patience gives up, all work goes on, and the next drain begins when what the driver
// had at that moment has ended: a long kernel is waited for outside of the driver, and costs others
// one drain. Its patience doubles each time, so that long kernels side by side do not keep calls
// waiting for ever; see QuietMoments for the part of the time that drains may take.
//
// Confined to the device thread.
class Drain {
 public:
  using Channels = std::vector<std::unique_ptr<Channel>>;
  static constexpr std::chrono::nanoseconds kPatienceMin = std::chrono::milliseconds(1);
  static constexpr std::chrono::nanoseconds kPatienceMax = std::chrono::seconds(1);

  // Both outlive it.
  Drain(QuietMoments& moments, Channels& channels) : moments_(moments), channels_(channels) {}

  // After each look at the channels: what has ended is known, what may follow has been issued.
  void Review();

 private:
  bool HasBlockers() const;
  void Begin();
  void GiveUp(QuietMoments::TimePoint now);

  QuietMoments& moments_;
  Channels& channels_;
  std::chrono::nanoseconds patience_ = kPatienceMin;
  std::optional<QuietMoments::TimePoint> began_;  // While it drains.
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_DRAIN_H_
