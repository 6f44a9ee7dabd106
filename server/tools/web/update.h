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

// Timeline of a device: {"bin_ms", "ran": [{"client", "from_ms", "us": [...]}]}. Each number is the
// time that the client ran in one bin. Times are those of the machine's monotonic clock. "coarse":
// why bins are as long as the interval between two updates. "lost": number of commands that were
// overwritten before they were read.
using Timelines = std::map<std::string, nlohmann::json>;  // By device.

// Formats a snapshot for the page as JSON: the fields of the answers to kStatus and kClients that
// the page shows, and `timelines`. If there are too many clients, those of higher classes take
// precedence.
inline constexpr std::size_t kClientsShownMax = 512;
std::string UpdateText(const nlohmann::json& status, const nlohmann::json& clients,
                       const Timelines& timelines, const std::string& host, MonotonicTime now);
// Formats the snapshot for a time in which no server answers.
std::string FailureText(const std::string& why, const std::string& host, MonotonicTime now);

// Derives timelines with a single bin from the growth of each client's device time between two
// answers to kClients.
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
