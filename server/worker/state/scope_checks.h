// SPDX-License-Identifier: Apache-2.0
// Checks of whether a command may access the objects that it names. Used by CommandPump.

#ifndef GPUSHARED_SERVER_WORKER_STATE_SCOPE_CHECKS_H_
#define GPUSHARED_SERVER_WORKER_STATE_SCOPE_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "ipc/wire/command.h"
#include "ipc/wire/validate.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/rejection.h"

namespace gpushared::server {

// Keeps the module loaded until the command has ended.
inline void RetainModule(ClientState& client, std::uint32_t module, CommandSlot& slot) {
  std::uint16_t& place = slot.modules[slot.modules[0] == CommandSlot::kNoModule ? 0 : 1];
  place = static_cast<std::uint16_t>(module);
  client.scope.UseModule(module);
}

// Checks that [address, address + bytes) is memory that the client has mapped, or variables of one
// of its modules. In the latter case `slot` names the module.
inline MaybeRejected CheckMapped(ClientState& client, const char* what, std::uint64_t address,
                                 std::uint64_t bytes, CommandSlot& slot) {
  const std::uint64_t base = client.setup.space->base();
  if (address >= base && ipc::RangeInside(address - base, bytes, client.scope.mapped_bytes()))
      [[likely]] {
    return {};
  }
  if (client.scope.IsInMappings(address, bytes)) return {};
  if (const auto module = client.scope.ModuleWithVariables(address, bytes)) {
    RetainModule(client, *module, slot);
    return {};
  }
  return Reject(NotMapped{.what = what,
                          .address = address,
                          .bytes = bytes,
                          .mapped_base = base,
                          .mapped_bytes = client.scope.mapped_bytes()});
}

inline MaybeRejected CheckStagingBuffer(const ClientState& client, const char* what,
                                        const ipc::StagingRange& range) {
  const std::span<std::byte> staging_buffer = client.scope.staging_buffer(range.staging_buffer);
  if (staging_buffer.empty())
    return Reject(NoStagingBuffer{.what = what, .staging_buffer = range.staging_buffer});
  if (ipc::RangeInside(range.offset, range.bytes, staging_buffer.size())) [[likely]]
    return {};
  return Reject(
      OutsideStagingBuffer{.what = what, .range = range, .buffer_bytes = staging_buffer.size()});
}

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_SCOPE_CHECKS_H_
