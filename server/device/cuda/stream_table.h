// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_STREAM_TABLE_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_STREAM_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "server/device/device.h"

namespace gpushared::device::cuda {

// Assigns channels to clients' streams. GPUs have few queues and clients many streams, so a stream
// has a channel only while it has work: the one of its priority with the fewest other streams. It
// keeps the channel until its last work has ended, even if its priority changes, because otherwise
// the order of its work would be lost.
//
// Confined to the device thread.
class StreamTable {
 public:
  // Channels of each priority, lowest first. The highest priority has separate channels, so its
  // work is not queued after other work, although it may wait for running work on the GPU.
  static constexpr std::array<std::size_t, 3> kChannels = {10, 10, 8};
  static constexpr std::size_t kChannelsTotal = kChannels[0] + kChannels[1] + kChannels[2];
  // If there are more streams than hardware connections, the driver queues streams of any priority
  // together, so the write that is to stop a kernel could be queued after that kernel.
  // CUDA_DEVICE_MAX_CONNECTIONS is at most 32. The streams for zeroing and for urgent writes use
  // connections as well, and the number of streams that the driver itself uses is unknown.
  static constexpr std::size_t kConnections = 32;
  static constexpr std::size_t kOtherStreams = 4;
  static_assert(kChannelsTotal + kOtherStreams <= kConnections);

  // Returns the level of a channel, which is an index into kChannels.
  static std::size_t GetLevel(std::size_t channel) {
    return channel < kChannels[0] ? 0 : channel < kChannels[0] + kChannels[1] ? 1 : 2;
  }

  // Counts a work item of the stream and returns its channel.
  std::size_t Enter(StreamKey stream, std::uint8_t priority);
  // Called when a work item of the stream has ended.
  void Leave(StreamKey stream);

 private:
  struct Entry {
    std::size_t channel = 0;
    std::size_t works = 0;
  };
  using Entries = std::unordered_map<StreamKey, Entry>;

  std::size_t Choose(std::uint8_t priority) const;

  Entries entries_;
  std::vector<Entries::node_type> spare_;                 // Avoids allocations in the steady state.
  std::array<std::size_t, kChannelsTotal> streams_ = {};  // Streams with work, by channel.
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_STREAM_TABLE_H_
