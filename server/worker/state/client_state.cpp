// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/client_state.h"

#include <fmt/format.h>

namespace gpushared::server {

ClientState::ClientState(const Setup& of)
    : setup(of),
      intake(*of.commands, *of.completions),
      graphs(of.graphs),
      buffers(of.space),
      streams(of.limits.commands_taken_max),
      output(*of.completions, *of.commands, of.printed),
      gate(*of.completions, *of.commands),
      spec_(of.spec),
      caps_(of.caps) {}

std::string ClientState::Who(std::uint32_t stream, std::uint64_t sequence) const {
  return fmt::format("[{} stream {} command {}]", setup.who, stream, sequence);
}

}  // namespace gpushared::server
