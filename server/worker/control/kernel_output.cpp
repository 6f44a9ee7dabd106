// SPDX-License-Identifier: Apache-2.0
#include "server/worker/control/kernel_output.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "server/worker/state/client_state.h"

namespace gpushared::server {

void KernelOutputLog::Keep(std::uint64_t session, std::shared_ptr<PrintedText> text) {
  const MutexLock lock(mutex_);
  kept_[session] = std::move(text);
}

void KernelOutputLog::Forget(std::uint64_t session) {
  const MutexLock lock(mutex_);
  kept_.erase(session);
}

void KernelOutputLog::Write(const device::KernelOutput& output) {
  const std::uint64_t session = ClientState::GetSession(output.stream);
  {
    const MutexLock lock(mutex_);
    const auto found = kept_.find(session);
    if (found != kept_.end()) return found->second->Add(output.text);
  }
  Write(session, "client " + std::to_string(session), output.text);
}

void KernelOutputLog::Write(std::string_view text) {
  constexpr std::uint64_t kNoSession = 0;
  Write(kNoSession, "a kernel", text);
}

void KernelOutputLog::Write(std::uint64_t session, std::string_view who, std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = std::min({rest.find('\n'), rest.size(), kLineBytesMax});
    std::string line(rest.substr(0, end));
    rest.remove_prefix(end);
    if (!rest.empty() && rest.front() == '\n') rest.remove_prefix(1);
    // The bytes come from a client, so anything that a terminal might interpret is replaced.
    std::replace_if(
        line.begin(), line.end(),
        [](char c) {
          const auto byte = static_cast<unsigned char>(c);
          return byte < 0x20 || byte >= 0x7f;
        },
        '?');
    const std::string output = std::string(who) + " prints: " + line;
    if (!log_.GetWrite(spdlog::level::info, session, output)) return;
  }
}

}  // namespace gpushared::server
