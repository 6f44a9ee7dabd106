// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_WEB_UPDATE_H_
#define GPUSHARED_SERVER_TOOLS_WEB_UPDATE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

namespace gpushared::web {

using MonotonicTime = std::chrono::steady_clock::time_point;

// Who ran when on a device: {"bin_ms", "ran": [{"client", "from_ms", "us": [...]}]}. Each number
// says how long the client ran in one bin. Times are those of the machine's monotonic clock.
// "coarse": why bins are as long as the time between two updates. "lost": how many commands went by
// too fast to be counted.
using Timelines = std::map<std::string, nlohmann::json>;  // By device.

// The page's knowledge of a moment, as JSON: what it shows of a server's answers to kStatus and
// kClients, and `timelines`. Of many clients, those of higher classes go first.
inline constexpr std::size_t kClientsShownMax = 512;
std::string UpdateText(const nlohmann::json& status, const nlohmann::json& clients,
                       const Timelines& timelines, const std::string& host, MonotonicTime now);
// While there is no server.
std::string FailureText(const std::string& why, const std::string& host, MonotonicTime now);

// Timelines from how much each client's device time grew between two answers to kClients: one bin.
//
// Thread-compatible.
class GrowthTimelines {
 public:
  Timelines Take(const nlohmann::json& clients, MonotonicTime now);

 private:
  struct Seen {
    std::string device;
    double device_time_s = 0;
  };
  std::map<std::uint64_t, Seen> before_;  // By client.
  MonotonicTime at_{};
};

}  // namespace gpushared::web

#endif  // GPUSHARED_SERVER_TOOLS_WEB_UPDATE_H_
