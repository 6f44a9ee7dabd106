// SPDX-License-Identifier: Apache-2.0
// A server's answers to status and ps at one moment, as numbers.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_TOP_SAMPLE_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TOP_SAMPLE_H_

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
inline constexpr std::size_t kDevicesMax = 64;  // Further rows are ignored.
// Limit of clients: 256 for each of 64 devices, more than a device can have sessions.
inline constexpr std::size_t kClientsMax = 16384;

// A figure that a server reports; empty if the server omitted it, which differs from 0.
using Figure = std::optional<double>;

struct ServerSample {
  std::string version, policy, state;
  Figure uptime_s;
};

// State and counters of a device. Times are in seconds. The counters, from device_s to stops, never
// decrease.
struct DeviceSample {
  std::string id, name, state;
  std::string missing;  // Why the device is missing.
  Figure sessions, memory_bytes, mapped_bytes, power_w;
  std::array<Figure, kClassNames.size()> device_s;  // By class.
  Figure gap_s, gap_used_s, host_steal_s, launches, stops;
  bool is_overloaded = false;
};

// Keys of the numbers that are read for each client.
inline constexpr auto kClientKeys = std::to_array<std::string_view>(
    {"pid", "uid", "weight", "max_share_percent", "memory_bytes", "quota_bytes", "device_time_s",
     "waited_s", "starved_for_s", "launches", "stops", "bytes_in", "bytes_out", "requests",
     "requests_target_met", "latency_target_us", "request_p99_us", "queue_wait_p99_us",
     "energy_j"});

// One of these keys; any other text fails to compile.
struct ClientKey {
  consteval ClientKey(const char* key) {
    while (kClientKeys.at(index) != key) ++index;
  }
  std::size_t index = 0;
};

using ClientNumbers = std::array<Figure, kClientKeys.size()>;

struct ClientSample {
  const Figure& operator[](ClientKey key) const { return numbers[key.index]; }

  std::uint64_t id = 0;
  std::string name, scheduling_class, device, endpoint;
  ClientNumbers numbers;
};

struct Sample {
  ServerSample server;
  std::vector<DeviceSample> devices;
  std::vector<ClientSample> clients;
  // Times at which the two answers arrived, in seconds of the same clock.
  double devices_at_s = 0, clients_at_s = 0;
};

// Read the answers to kStatus and kClients. These are untrusted: values of a wrong type are treated
// as absent.
void ReadDevices(const nlohmann::json& status, double at_s, Sample& sample);
void ReadClients(const nlohmann::json& clients, double at_s, Sample& sample);

}  // namespace gpushared::server::top

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TOP_SAMPLE_H_
