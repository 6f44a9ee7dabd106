// SPDX-License-Identifier: Apache-2.0
#include "server/web/metrics.h"

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "server/totals/device_totals.h"

#include <nlohmann/json.hpp>

namespace gpushared::web {
namespace {

using nlohmann::json;
using server::TotalHistogram;
using Type = Exposition::Type;

constexpr std::size_t kRowsMax = 4096;  // An array in an answer has no more.

// One number of a device or a class, and the family that it belongs to.
struct Entry {
  const char* name;
  Type type;
  const char* key;  // In the answer.
  const char* help;
};

constexpr Entry kOfDevice[] = {
    {"gpushared_device_memory_bytes", Type::kGauge, "memory_bytes", "Memory of the device."},
    {"gpushared_device_memory_mapped_bytes", Type::kGauge, "mapped_bytes",
     "Device memory that clients hold."},
    {"gpushared_device_generation", Type::kGauge, "generation", "Number of the device's worker."},
    {"gpushared_sessions", Type::kGauge, "sessions", "Sessions that live now."},
};
constexpr Entry kOfDeviceTotals[] = {
    {"gpushared_workers_started", Type::kCounter, "workers_started",
     "Workers that were started for the device."},
    {"gpushared_gap_seconds", Type::kCounter, "gap_s",
     "Time in which other clients had work and no client of the high class had any."},
    {"gpushared_gap_used_seconds", Type::kCounter, "gap_used_s",
     "Gap time with work on the device."},
    {"gpushared_device_host_delay_seconds", Type::kCounter, "host_delay_s",
     "Time in which the machine kept the device from its work."},
};
// Absent where no memory moves.
constexpr Entry kOfOvercommit[] = {
    {"gpushared_overcommit_bytes", Type::kGauge, "bytes",
     "Host memory for device memory that clients hold beyond their guarantees."},
    {"gpushared_overcommit_reserved_bytes", Type::kGauge, "reserved_bytes",
     "The part of that which is promised to clients."},
    {"gpushared_overcommit_used_bytes", Type::kGauge, "used_bytes",
     "The part of that which holds device memory now."},
    {"gpushared_overcommit_move_out_bytes_per_second", Type::kGauge, "move_out_bytes_per_s",
     "Device memory goes at least so fast to host memory in 95 of 100 moves within guarantees."},
    {"gpushared_overcommit_move_in_bytes_per_second", Type::kGauge, "move_in_bytes_per_s",
     "Device memory comes back at least so fast in 75 of 100 moves."},
    {"gpushared_overcommit_room_delay_seconds", Type::kGauge, "room_delay_s",
     "A promise of room has it once: the slowest move took so much longer, or a whole wait did."},
    {"gpushared_overcommit_room_stop_seconds", Type::kGauge, "room_stop_s",
     "The longest stop; a promise of room has it for each client that has to stop."},
    {"gpushared_overcommit_rooms", Type::kCounter, "rooms",
     "Times that room was made within a guarantee, with a promise how long it takes."},
    {"gpushared_overcommit_rooms_late", Type::kCounter, "rooms_late",
     "The part of that which took longer than promised."},
    {"gpushared_overcommit_room_longest_seconds", Type::kGauge, "room_longest_s",
     "The longest of these waits."},
    {"gpushared_overcommit_room_longest_promised_seconds", Type::kGauge, "room_longest_promised_s",
     "How long that one was promised to take at most."},
};
constexpr Entry kOfClass[] = {
    {"gpushared_class_device_seconds", Type::kCounter, "device_time_s",
     "Device time that clients of the class were charged."},
    {"gpushared_sessions_started", Type::kCounter, "sessions", "Sessions that began in the class."},
    {"gpushared_commands", Type::kCounter, "commands", "Commands that were taken from clients."},
    {"gpushared_launches", Type::kCounter, "launches", "Kernel launches that finished."},
    {"gpushared_copies", Type::kCounter, "copies", "Copies that finished."},
    {"gpushared_fills", Type::kCounter, "fills", "Fills that finished."},
    {"gpushared_copied_in_bytes", Type::kCounter, "bytes_in", "Bytes copied to the device."},
    {"gpushared_copied_out_bytes", Type::kCounter, "bytes_out", "Bytes copied from the device."},
    {"gpushared_copied_on_device_bytes", Type::kCounter, "bytes_on_device",
     "Bytes copied on the device, or filled."},
    {"gpushared_commands_refused", Type::kCounter, "commands_refused",
     "Commands that were not possible."},
    {"gpushared_commands_failed", Type::kCounter, "commands_failed",
     "Commands that the device ended with an error."},
    {"gpushared_commands_skipped", Type::kCounter, "commands_skipped",
     "Commands that an earlier error of their stream skipped."},
    {"gpushared_stops", Type::kCounter, "stops",
     "Times a command was taken off the device unfinished."},
    {"gpushared_wasted_seconds", Type::kCounter, "wasted_s",
     "Device time that left nothing behind."},
    {"gpushared_requests", Type::kCounter, "requests", "Requests that ended."},
    {"gpushared_requests_promised", Type::kCounter, "requests_promised",
     "Requests that ended and had a latency promise."},
    {"gpushared_requests_kept", Type::kCounter, "requests_kept",
     "Requests that ended within their promise and without an error."},
    {"gpushared_promises_given_up", Type::kCounter, "promises_given_up",
     "Promises that the policy gave up while it was overloaded."},
    {"gpushared_memory_moved_out_bytes", Type::kCounter, "memory_out_bytes",
     "Device memory that was moved to host memory, to make room for others."},
    {"gpushared_memory_moved_in_bytes", Type::kCounter, "memory_in_bytes",
     "Device memory that came back from host memory."},
    {"gpushared_memory_moves", Type::kCounter, "memory_moves",
     "Times a client that had all of its memory on the device lost some of it."},
    {"gpushared_memory_waited_seconds", Type::kCounter, "memory_waited_s",
     "Time in which a client had work or asked for memory, and its memory was not on the device."},
};
// Gauges of the sessions that are here now.
constexpr Entry kOfSessions[] = {
    {"gpushared_class_sessions", Type::kGauge, "sessions", "Sessions of the class that live now."},
    {"gpushared_class_sessions_waiting", Type::kGauge, "waiting",
     "Sessions of the class with commands and none on the device."},
    {"gpushared_class_memory_bytes", Type::kGauge, "memory_bytes",
     "Device memory that sessions of the class hold."},
    {"gpushared_class_memory_resident_bytes", Type::kGauge, "resident_bytes",
     "The part of that which is on the device."},
    {"gpushared_class_memory_guaranteed_bytes", Type::kGauge, "guaranteed_bytes",
     "Device memory that is there for sessions of the class at any time."},
    {"gpushared_class_quota_used_ratio", Type::kGauge, "quota_used_most",
     "Part of its quota that the session of the class holds which holds most of its own."},
};
constexpr Entry kHistograms[] = {
    {"gpushared_queue_wait_seconds", Type::kHistogram, "queue_wait",
     "Time of a command from the ring to the device."},
    {"gpushared_request_seconds", Type::kHistogram, "request_time",
     "Time of a request from its begin to its end."},
    {"gpushared_stop_seconds", Type::kHistogram, "stop_time",
     "Time from asking a command to stop until it was off the device."},
};
constexpr Entry kOfEntrance[] = {
    {"gpushared_entrance_device_seconds", Type::kCounter, "device_time_s",
     "Device time of clients that came through the entrance."},
    {"gpushared_entrance_sessions_started", Type::kCounter, "sessions",
     "Sessions that began through the entrance."},
    {"gpushared_entrance_commands", Type::kCounter, "commands",
     "Commands that were taken from the entrance's clients."},
    {"gpushared_entrance_requests", Type::kCounter, "requests",
     "Requests of the entrance's clients that ended."},
    {"gpushared_entrance_requests_promised", Type::kCounter, "requests_promised",
     "Requests of the entrance's clients that ended and had a promise."},
    {"gpushared_entrance_requests_kept", Type::kCounter, "requests_kept",
     "Requests of the entrance's clients that ended within their promise."},
};

const json& Member(const json& object, const char* key) {
  static const json kNothing;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? kNothing : *found;
}

std::optional<double> Number(const json& object, const char* key) {
  const json& value = Member(object, key);
  if (!value.is_number()) return std::nullopt;
  return value.get<double>();
}

std::string Text(const json& object, const char* key) {
  const json& value = Member(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

// Who ended the service of a device: an operator, who is not to be woken for it, or a failure.
constexpr std::array kDeviceStates = {"serving", "draining", "drained", "lost"};

std::string_view DeviceState(std::string_view told) {
  if (told == "ready") return "serving";
  if (told == "draining" || told == "leaving") return "draining";
  if (told == "drained" || told == "gone") return "drained";
  return "lost";
}

// Empty where there are none, or nonsensically many.
const json& Rows(const json& object, const char* key) {
  static const json kNone = json::array();
  const json& rows = Member(object, key);
  return rows.is_array() && rows.size() <= kRowsMax ? rows : kNone;
}

// Bounds in seconds, as DeviceTotals counts.
std::vector<double> Bounds() {
  std::vector<double> bounds;
  for (std::size_t each = 0; each < TotalHistogram::kBounds; ++each) {
    bounds.push_back(static_cast<double>(TotalHistogram::BoundNs(each)) / 1e9);
  }
  return bounds;
}

// The names that dcgm-exporter has for the same things.
Labels DeviceLabels(const json& device, const std::string& host) {
  const std::string id = Text(device, "device");
  const std::size_t colon = id.find(':');
  Labels labels = {{"gpu", colon == std::string::npos ? id : id.substr(colon + 1)},
                   {"UUID", Text(device, "uuid")}};
  const std::string bus = Text(device, "pci_bus");
  if (!bus.empty()) labels.emplace_back("pci_bus_id", bus);
  labels.emplace_back("device", id);
  labels.emplace_back("modelName", Text(device, "name"));
  labels.emplace_back("Hostname", host);
  return labels;
}

Labels With(Labels labels, std::string_view name, std::string value) {
  labels.emplace_back(name, std::move(value));
  return labels;
}

class Writer {
 public:
  Writer(const json& status, const std::string& host, TextFormat format)
      : status_(status), text_(format) {
    for (const json& device : Rows(status, "devices")) {
      devices_.push_back({&device, DeviceLabels(device, host)});
    }
  }

  std::string Write(const json& entrances) {
    AddServer();
    AddDevices();
    AddClasses();
    AddEntrances(entrances);
    return text_.Finish();
  }

 private:
  struct Device {
    const json* facts;
    Labels labels;
  };

  void Begin(const Entry& entry) { text_.Begin(entry.name, entry.type, entry.help); }
  void AddNumber(const Labels& labels, const json& object, const char* key) {
    if (const std::optional<double> value = Number(object, key)) text_.Add(labels, *value);
  }

  void AddServer() {
    const json& server = Member(status_, "server");
    text_.Begin("gpushared_build", Type::kInfo, "The server's version and policy.");
    text_.Add({{"version", Text(server, "version")}, {"policy", Text(server, "policy")}}, 1);
    text_.Begin("gpushared_uptime_seconds", Type::kGauge, "Age of the broker.");
    AddNumber({}, server, "uptime_s");
    text_.Begin("gpushared_upgrades", Type::kGauge, "How often the broker executed its program.");
    AddNumber({}, server, "upgrades");
    text_.Begin("gpushared_admin_requests_refused", Type::kCounter,
                "Requests of operators that were refused for want of a right.");
    const json& refused = Member(server, "refused_requests");
    if (!refused.is_object()) return;
    for (const auto& [verb, count] : refused.items()) {
      if (count.is_number()) text_.Add({{"verb", verb}}, count.get<double>());
    }
  }

  void AddDevices() {
    text_.Begin("gpushared_device_up", Type::kGauge,
                "1 while the device serves clients, also while it drains and has some, else 0.");
    for (const Device& device : devices_) {
      const std::string state = Text(*device.facts, "state");
      text_.Add(device.labels, state == "ready" || state == "draining" ? 1 : 0);
    }
    text_.Begin("gpushared_device_state", Type::kGauge,
                "1 for the state that the device is in, 0 for the others. Drained: by an operator. "
                "Lost: it starts, or its worker has died, is silent, or the device is missing.");
    for (const Device& device : devices_) {
      const std::string told = Text(*device.facts, "state");
      for (const char* const state : kDeviceStates) {
        text_.Add(With(device.labels, "state", state), DeviceState(told) == state ? 1 : 0);
      }
    }
    for (const Entry& entry : kOfDevice) {
      Begin(entry);
      for (const Device& device : devices_) AddNumber(device.labels, *device.facts, entry.key);
    }
    for (const Entry& entry : kOfOvercommit) {
      Begin(entry);
      for (const Device& device : devices_) {
        AddNumber(device.labels, Member(*device.facts, "overcommit"), entry.key);
      }
    }
    for (const Entry& entry : kOfDeviceTotals) {
      Begin(entry);
      for (const Device& device : devices_) {
        AddNumber(device.labels, Member(*device.facts, "totals"), entry.key);
      }
    }
    text_.Begin("gpushared_device_busy_seconds", Type::kCounter,
                "Device time that anybody was charged.");
    for (const Device& device : devices_) {
      const json& classes = Member(Member(*device.facts, "totals"), "classes");
      if (!classes.is_object()) continue;
      double busy = 0;
      for (const json& each : classes) busy += Number(each, "device_time_s").value_or(0);
      text_.Add(device.labels, busy);
    }
  }

  // Calls it with the labels and the totals of each class of each device.
  template <typename Function>
  void ForEachClass(const Function& function) {
    for (const Device& device : devices_) {
      ForEachClassIn(Member(*device.facts, "totals"), device.labels, function);
    }
  }
  template <typename Function>
  static void ForEachClassIn(const json& object, const Labels& labels, const Function& function) {
    const json& classes = Member(object, "classes");
    if (!classes.is_object()) return;
    for (const auto& [name, row] : classes.items()) function(With(labels, "class", name), row);
  }

  void AddClasses() {
    for (const Entry& entry : kOfSessions) {
      Begin(entry);
      for (const Device& device : devices_) {
        ForEachClassIn(*device.facts, device.labels, [&](const Labels& labels, const json& row) {
          AddNumber(labels, row, entry.key);
        });
      }
    }
    for (const Entry& entry : kOfClass) {
      Begin(entry);
      ForEachClass(
          [&](const Labels& labels, const json& totals) { AddNumber(labels, totals, entry.key); });
    }
    for (const Entry& entry : kHistograms) {
      Begin(entry);
      ForEachClass([&](const Labels& labels, const json& totals) {
        AddHistogram(labels, Member(totals, entry.key));
      });
    }
  }

  void AddHistogram(const Labels& labels, const json& histogram) {
    std::vector<double> counts;
    for (const json& count : Rows(histogram, "counts")) {
      if (count.is_number()) counts.push_back(count.get<double>());
    }
    const std::optional<double> sum = Number(histogram, "sum_s");
    if (counts.size() == bounds_.size() + 1 && sum) {
      text_.AddHistogram(labels, bounds_, counts, *sum);
    }
  }

  void AddEntrances(const json& entrances) {
    for (const Entry& entry : kOfEntrance) {
      Begin(entry);
      for (const Device& device : devices_) {
        for (const json& row : Rows(Member(*device.facts, "totals"), "entrances")) {
          AddNumber(With(With(device.labels, "entrance", Text(row, "entrance")), "class",
                         Text(row, "class")),
                    row, entry.key);
        }
      }
    }
    text_.Begin("gpushared_entrance_admitted", Type::kCounter,
                "Clients that were handed to a worker.");
    for (const json& row : Rows(entrances, "entrances")) {
      AddNumber({{"entrance", Text(row, "entrance")}}, row, "admitted");
    }
    text_.Begin("gpushared_entrance_refused", Type::kCounter, "Clients that were refused.");
    for (const json& row : Rows(entrances, "entrances")) {
      const json& refused = Member(row, "refused");
      if (!refused.is_object()) continue;
      for (const auto& [code, count] : refused.items()) {
        if (!count.is_number()) continue;
        text_.Add({{"entrance", Text(row, "entrance")}, {"code", code}}, count.get<double>());
      }
    }
  }

  const json& status_;
  const std::vector<double> bounds_ = Bounds();
  std::vector<Device> devices_;
  Exposition text_;
};

}  // namespace

std::string MetricsText(const json& status, const json& entrances, const std::string& host,
                        TextFormat format) {
  return Writer(status, host, format).Write(entrances);
}

}  // namespace gpushared::web
