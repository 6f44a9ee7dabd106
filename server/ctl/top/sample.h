// SPDX-License-Identifier: Apache-2.0
// A server's answers to status and ps at one moment, as numbers.

#ifndef GPUSHARED_SERVER_CTL_TOP_SAMPLE_H_
#define GPUSHARED_SERVER_CTL_TOP_SAMPLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gpushared::server::top {

inline constexpr std::array<std::string_view, 3> kClassNames = {"high", "normal", "low"};
inline constexpr std::size_t kDevicesMax = 64;     // Rows beyond these are not read.
inline constexpr std::size_t kClientsMax = 16384;  // Two for each session of 64 devices.

// Empty where the server did not say it: an absent figure is never 0.
using Figure = std::optional<double>;

struct ServerSample {
  std::string version, policy, state;
  Figure uptime_s;
};

// Times are in seconds and only grow, as do counts.
struct DeviceSample {
  std::string id, name, state;
  std::string missing;  // Why it is not there.
  Figure sessions, memory_bytes, mapped_bytes;
  std::array<Figure, kClassNames.size()> device_s;  // By class.
  Figure gap_s, gap_used_s, host_delay_s, launches, stops;
  bool is_overloaded = false;
};

struct ClientSample {
  std::uint64_t id = 0;
  std::string name, scheduling_class, device, entrance;
  Figure pid, uid, weight, max_share_percent;
  Figure memory_bytes, quota_bytes;
  Figure starved_for_s;  // Not a sum: until now, without a pause.
  Figure device_s, waited_s, launches, stops, bytes_in, bytes_out;
  Figure requests, requests_kept, promise_us, request_p99_us, queue_wait_p99_us;
};

struct Sample {
  ServerSample server;
  std::vector<DeviceSample> devices;
  std::vector<ClientSample> clients;
  // When the two answers came, in seconds of one clock.
  double devices_at_s = 0, clients_at_s = 0;
};

// The answers to kStatus and kClients. They are input: what is of another type is absent.
void ReadDevices(const nlohmann::json& status, double at_s, Sample& sample);
void ReadClients(const nlohmann::json& clients, double at_s, Sample& sample);

}  // namespace gpushared::server::top

#endif  // GPUSHARED_SERVER_CTL_TOP_SAMPLE_H_
