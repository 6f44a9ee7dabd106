// SPDX-License-Identifier: Apache-2.0
// A server's answers, with the fields that top reads.

#ifndef GPUSHARED_TESTS_CTL_TOP_ANSWERS_H_
#define GPUSHARED_TESTS_CTL_TOP_ANSWERS_H_

#include <locale.h>

#include <string>
#include <vector>

#include "server/tools/ctl/top/figures.h"
#include "server/tools/ctl/top/sample.h"

#include <nlohmann/json.hpp>

namespace gpushared::server::top {

// Sets the locale, which determines the widths of characters.
class Utf8Locale {
 public:
  Utf8Locale() { ::setlocale(LC_CTYPE, "C.UTF-8"); }
  ~Utf8Locale() { ::setlocale(LC_CTYPE, "C"); }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;
};

struct DeviceTimes {
  double high = 0, normal = 0, low = 0;
};

inline nlohmann::json DeviceRow(const std::string& id, const DeviceTimes& times) {
  const auto of_class = [](double device_s) {
    return nlohmann::json{{"device_time_s", device_s}, {"launches", 10 * device_s}, {"stops", 2}};
  };
  return {{"device", id},
          {"name", "a device"},
          {"state", "ready"},
          {"sessions", 2},
          {"memory_bytes", 1 << 30},
          {"mapped_bytes", 1 << 28},
          {"totals",
           {{"gap_s", 10},
            {"gap_used_s", 5},
            {"classes",
             {{"high", of_class(times.high)},
              {"normal", of_class(times.normal)},
              {"low", of_class(times.low)}}}}}};
}

inline nlohmann::json ClientRow(unsigned id, const std::string& name, double device_s) {
  return {{"client", id},          {"name", name},
          {"pid", 1000 + id},      {"uid", 33},
          {"class", "low"},        {"weight", 1},
          {"device", "cpu:0"},     {"endpoint", "main"},
          {"memory_bytes", 4096},  {"device_time_s", device_s},
          {"waited_s", 0.5},       {"max_share_percent", 100},
          {"queue_wait_p99_us", 7}};
}

inline Sample GetSample(const std::vector<nlohmann::json>& devices,
                        const std::vector<nlohmann::json>& clients, double at_s) {
  Sample sample;
  ReadDevices({{"server", {{"version", "1.2.3"}, {"policy", "fair"}, {"uptime_s", 61}}},
               {"devices", devices}},
              at_s, sample);
  ReadClients({{"clients", clients}}, at_s, sample);
  return sample;
}

}  // namespace gpushared::server::top

#endif  // GPUSHARED_TESTS_CTL_TOP_ANSWERS_H_
