// SPDX-License-Identifier: Apache-2.0
#include "server/worker/device_thread/client_state.h"

#include <fmt/format.h>

namespace gpushared::server {

ClientState::ClientState(const Setup& setup_)
    : setup(setup_),
      spec(setup_.spec),
      commands(setup_.commands->granules, setup_.completions->granules_taken),
      completion_writer(setup_.completions->granules, setup_.commands->completions_taken),
      doorbell(setup_.completions->event, setup_.commands->waiting),
      slab(setup_.limits.commands_taken_max),
      streams(ipc::kStreamsMax),
      modules(ipc::kModulesMax) {}

std::string ClientState::Who(std::uint32_t stream, std::uint64_t sequence) const {
  return fmt::format("[{} stream {} command {}]", setup.who, stream, sequence);
}

}  // namespace gpushared::server
