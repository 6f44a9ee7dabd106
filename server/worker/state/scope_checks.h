// SPDX-License-Identifier: Apache-2.0
// Whether a command may name what it names. CommandPump's.

#ifndef GPUSHARED_SERVER_WORKER_STATE_SCOPE_CHECKS_H_
#define GPUSHARED_SERVER_WORKER_STATE_SCOPE_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "ipc/wire/command.h"
#include "ipc/wire/validate.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/refusal.h"

namespace gpushared::server {

// From now until the command has ended the module stays loaded.
inline void NameModule(ClientState& client, std::uint32_t module, CommandSlot& slot) {
  std::uint16_t& place = slot.modules[slot.modules[0] == CommandSlot::kNoModule ? 0 : 1];
  place = static_cast<std::uint16_t>(module);
  client.scope.UseModule(module);
}

// Whether [address, address + bytes) is memory that the client has mapped, or variables of one of
// its modules, which `slot` then names.
inline MaybeRefused CheckMapped(ClientState& client, const char* what, std::uint64_t address,
                                std::uint64_t bytes, CommandSlot& slot) {
  const std::uint64_t base = client.setup.space->base();
  if (address >= base && ipc::RangeInside(address - base, bytes, client.scope.mapped_bytes()))
      [[likely]] {
    return {};
  }
  if (client.scope.IsInMappings(address, bytes)) return {};
  if (const auto module = client.scope.ModuleWithVariables(address, bytes)) {
    NameModule(client, *module, slot);
    return {};
  }
  return Refuse({.reason = Refusal::Reason::kNotMapped,
                 .what = what,
                 .asked = bytes,
                 .allowed = client.scope.mapped_bytes(),
                 .at = address,
                 .base = base});
}

inline MaybeRefused CheckArena(const ClientState& client, const char* what,
                               const ipc::ArenaRange& range) {
  const std::span<std::byte> arena = client.scope.arena(range.arena);
  if (arena.empty())
    return Refuse({.reason = Refusal::Reason::kNoArena, .what = what, .number = range.arena});
  if (ipc::RangeInside(range.offset, range.bytes, arena.size())) [[likely]]
    return {};
  return Refuse({.reason = Refusal::Reason::kOutsideArena,
                 .what = what,
                 .number = range.arena,
                 .asked = range.bytes,
                 .allowed = arena.size(),
                 .at = range.offset});
}

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_SCOPE_CHECKS_H_
