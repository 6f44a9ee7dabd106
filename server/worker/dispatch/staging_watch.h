// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_DISPATCH_STAGING_WATCH_H_
#define GPUSHARED_SERVER_WORKER_DISPATCH_STAGING_WATCH_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/per_client.h"

namespace gpushared::server {

// Finds clients whose copies took so long that they may have removed pages of their staging
// buffers. While a client removes pages, a copy out of the buffer blocks in the kernel for
// milliseconds. Slowness alone proves nothing, so the control thread then checks the staging
// buffers.
//
// Confined to the device thread.
class StagingWatch {
 public:
  // Every copy of resident pages is faster than this, apart from pauses of up to kPauseMax.
  static constexpr std::uint64_t kSlowestBytesPerUs = 256;
  static constexpr scheduler::Duration kPauseMax = std::chrono::milliseconds(2);
  // Minimum interval between two checks of a client's staging buffers.
  static constexpr scheduler::Duration kCheckEvery = std::chrono::milliseconds(10);

  void OnClientAdded(const ClientState& client) { next_check_.Begin(client); }
  // Called when the command or a part of it has left the device.
  void OnLeft(const ClientState& client, const CommandSlot& command,
              const device::Completion& completion);
  // Sessions whose staging buffers must be checked; the caller empties it.
  std::vector<std::uint64_t>& suspects() { return suspects_; }

 private:
  std::vector<std::uint64_t> suspects_;
  PerClient<device::DeviceClock::time_point> next_check_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_DISPATCH_STAGING_WATCH_H_
