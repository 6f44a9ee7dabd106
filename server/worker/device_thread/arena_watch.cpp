// SPDX-License-Identifier: Apache-2.0
#include "server/worker/device_thread/arena_watch.h"

#include <algorithm>
#include <variant>

#include "server/worker/device_thread/client_state.h"

namespace gpushared::server {

void ArenaWatch::OnLeft(ClientState& client, const CommandSlot& command,
                        const device::Completion& completion) {
  const auto* const copy = std::get_if<device::CopyWork>(&command.work);
  if (copy == nullptr || copy->host == nullptr) return;
  const std::uint64_t units =
      completion.units_done - std::min(completion.units_done, command.units_done);
  const std::chrono::microseconds explained(units * device::kCopyPieceBytes / kSlowestBytesPerUs);
  if (completion.ended - completion.started <= explained + kPauseMax) return;
  if (completion.ended < client.copies.look_again_at_) return;
  client.copies.look_again_at_ = completion.ended + kLookEvery;
  suspects_.push_back(client.setup.session);
}

}  // namespace gpushared::server
