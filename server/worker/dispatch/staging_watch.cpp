// SPDX-License-Identifier: Apache-2.0
#include "server/worker/dispatch/staging_watch.h"

#include <algorithm>
#include <variant>

namespace gpushared::server {

void StagingWatch::OnLeft(const ClientState& client, const CommandSlot& command,
                          const device::Completion& completion) {
  const auto* const copy = std::get_if<device::CopyWork>(&command.work);
  if (copy == nullptr || copy->host == nullptr) return;
  const std::uint64_t units =
      completion.units_done - std::min(completion.units_done, command.units_done);
  const std::chrono::microseconds explained(units * device::kCopyPieceBytes / kSlowestBytesPerUs);
  if (completion.ended - completion.started <= explained + kPauseMax) return;
  device::DeviceClock::time_point& next_check = next_check_[client];
  if (completion.ended < next_check) return;
  next_check = completion.ended + kCheckEvery;
  suspects_.push_back(client.setup.session);
}

}  // namespace gpushared::server
