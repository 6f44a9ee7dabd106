// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_DISPATCH_ARENA_WATCH_H_
#define GPUSHARED_SERVER_WORKER_DISPATCH_ARENA_WATCH_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/per_client.h"

namespace gpushared::server {

// Finds clients whose copies took so long that pages of their staging buffers may be gone. While a
// client empties its staging buffer, whoever copies out of it waits for milliseconds in the kernel.
// The control thread then looks at the staging buffers: time alone accuses nobody.
//
// Confined to the device thread.
class StagingWatch {
 public:
  // No copy of whole pages is as slow, on any machine that computes.
  static constexpr std::uint64_t kSlowestBytesPerUs = 256;
  static constexpr scheduler::Duration kPauseMax = std::chrono::milliseconds(2);
  // A client's staging buffers are looked at no more often.
  static constexpr scheduler::Duration kLookEvery = std::chrono::milliseconds(10);

  void OnClientAdded(const ClientState& client) { look_again_at_.Begin(client); }
  // A part of the command has left the device, or all that was left of it.
  void OnLeft(const ClientState& client, const CommandSlot& command,
              const device::Completion& completion);
  // Sessions whose staging buffers are to be looked at; the caller empties it.
  std::vector<std::uint64_t>& suspects() { return suspects_; }

 private:
  std::vector<std::uint64_t> suspects_;
  PerClient<device::DeviceClock::time_point> look_again_at_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_DISPATCH_ARENA_WATCH_H_
