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

// Which channel a client's stream uses. GPUs have few queues and clients many streams, so a stream
// has a channel only while it has work: the one of its priority's with the fewest other streams.
// Until its last work has ended it keeps that, whatever its priority becomes, or its order would
// be lost.
//
// Confined to the device thread.
class StreamTable {
 public:
  // Channels of each priority, lowest first. The highest has its own, so its work waits in no queue
  // behind others. On the GPU it may still wait for running work.
  static constexpr std::array<std::size_t, 3> kChannels = {10, 10, 8};
  static constexpr std::size_t kChannelsTotal = kChannels[0] + kChannels[1] + kChannels[2];
  // The driver puts streams that are more than its connections to the GPU into the queues of
  // others, whatever their priority: a word that is to stop a kernel would come behind that kernel.
  // CUDA_DEVICE_MAX_CONNECTIONS is at most 32. There are streams for zeroing and for urgent writes,
  // too, and the driver's own are not known.
  static constexpr std::size_t kConnections = 32;
  static constexpr std::size_t kOtherStreams = 4;
  static_assert(kChannelsTotal + kOtherStreams <= kConnections);

  // The index into kChannels that a channel belongs to.
  static std::size_t GetLevel(std::size_t channel) {
    return channel < kChannels[0] ? 0 : channel < kChannels[0] + kChannels[1] ? 1 : 2;
  }

  // One more work of the stream; returns its channel.
  std::size_t Enter(StreamKey stream, std::uint8_t priority);
  // One work of the stream has ended.
  void Leave(StreamKey stream);
  // The channel of a stream that has work; kChannelsTotal for others.
  std::size_t GetChannel(StreamKey stream) const;

 private:
  struct Entry {
    std::size_t channel = 0;
    std::size_t works = 0;
  };
  using Entries = std::unordered_map<StreamKey, Entry>;

  std::size_t Choose(std::uint8_t priority) const;

  Entries entries_;
  std::vector<Entries::node_type> spare_;  // So that a steady state allocates nothing.
  std::array<std::size_t, kChannelsTotal> streams_ = {};  // With work, by channel.
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_STREAM_TABLE_H_
