// SPDX-License-Identifier: Apache-2.0
#include "server/worker/kernel_output.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <spdlog/spdlog.h>

#include "server/worker/client_state.h"

namespace gpushared::server {

void KernelOutputLog::Write(const device::KernelOutput& output) {
  Write("client " + std::to_string(ClientState::SessionOf(output.stream)), output.text);
}

void KernelOutputLog::Write(const std::string& who, std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = std::min({rest.find('\n'), rest.size(), kLineBytesMax});
    std::string line(rest.substr(0, end));
    rest.remove_prefix(end);
    if (!rest.empty() && rest.front() == '\n') rest.remove_prefix(1);
    // Bytes of a client: nothing that a terminal would obey.
    std::replace_if(
        line.begin(), line.end(),
        [](char c) {
          const auto byte = static_cast<unsigned char>(c);
          return byte < 0x20 || byte >= 0x7f;
        },
        '?');
    const std::string told = who + " prints: " + line;
    if (!Admit(told.size())) return;
    spdlog::info("{}", told);
  }
}

bool KernelOutputLog::Admit(std::size_t bytes) {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  if (now - second_began_ >= std::chrono::seconds(1)) {
    second_began_ = now;
    bytes_this_second_ = 0;
    said_so_ = false;
  }
  if (bytes_this_second_ + bytes <= kBytesPerSecond) {
    bytes_this_second_ += bytes;
    return true;
  }
  if (!said_so_) {
    said_so_ = true;
    spdlog::warn("kernels print more than {} bytes per second; the rest is dropped",
                 kBytesPerSecond);
  }
  return false;
}

}  // namespace gpushared::server
