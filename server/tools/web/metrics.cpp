// SPDX-License-Identifier: Apache-2.0
#include "server/tools/web/metrics.h"

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/owner.h"
#include "server/telemetry/admin/json_fields.h"
#include "server/telemetry/admin/user_name.h"
#include "server/telemetry/totals/figures.h"

#include <nlohmann/json.hpp>

namespace gpushared::web {
namespace {

using admin::Member;
using admin::Number;
using admin::Text;
using nlohmann::json;
using server::TotalHistogram;
using Type = Exposition::Type;

constexpr std::size_t kRowsMax = 4096;  // Arrays with more rows are ignored.

// A figure that the broker reports about a device. All others are in
// server/telemetry/totals/figures.h.
struct Entry {
  const char* name;
  Type type;
  const char* key;  // Key in the answer.
  const char* help;
};

constexpr Entry kOfDevice[] = {
    {"gpushared_device_memory_bytes", Type::kGauge, "memory_bytes", "Memory of the device."},
    {"gpushared_device_memory_mapped_bytes", Type::kGauge, "mapped_bytes",
     "Device memory allocated by clients."},
    {"gpushared_device_generation", Type::kGauge, "generation", "Number of the device's worker."},
    {"gpushared_sessions", Type::kGauge, "sessions", "Live sessions."},
};

// States of a device. "drained" is separate, because an operator's decision warrants no alert,
// whereas a failure does.
constexpr std::array kDeviceStates = {"serving", "draining", "drained", "lost"};

std::string_view DeviceState(std::string_view state) {
  if (state == "ready") return "serving";
  if (state == "draining" || state == "leaving") return "draining";
  if (state == "drained" || state == "gone") return "drained";
  return "lost";
}

// Returns an empty array if the key is missing or has implausibly many rows.
const json& Rows(const json& object, const char* key) {
  static const json kNone = json::array();
  const json& rows = Member(object, key);
  return rows.is_array() && rows.size() <= kRowsMax ? rows : kNone;
}

// Returns the bucket bounds in seconds, as in DeviceTotals.
std::vector<double> Bounds() {
  std::vector<double> bounds;
  for (std::size_t each = 0; each < TotalHistogram::kBounds; ++each) {
    bounds.push_back(static_cast<double>(TotalHistogram::BoundNs(each)) / 1e9);
  }
  return bounds;
}

// Label names match those of dcgm-exporter.
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

// Returns the labels of an owner's row. Labels that dcgm-exporter also exports have its names.
Labels OwnerLabels(const json& row, Labels labels, admin::UserNames& users) {
  for (const ipc::OwnerField& field : ipc::kOwnerFields) {
    const std::string value = Text(row, field.name.data());
    if (value.empty()) continue;
    const bool is_user = field.name == "uid";
    labels.emplace_back(is_user ? "user" : field.name, is_user ? users.Get(value) : value);
  }
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
    admin::UserNames users;
    for (const json& device : Rows(status, "devices")) {
      devices_.push_back({&device, DeviceLabels(device, host)});
      const Labels& labels = devices_.back().labels;
      for (const json& row : Rows(device, "owners")) {
        owners_now_.push_back({&row, OwnerLabels(row, labels, users)});
      }
      for (const json& row : Rows(Member(device, "totals"), "owners")) {
        owners_.push_back({&row, OwnerLabels(row, labels, users)});
      }
    }
  }

  std::string Write(const json& endpoints) {
    AddServer();
    AddDevices();
    AddClasses();
    AddEndpoints(endpoints);
    AddOwners();
    return text_.Finish();
  }

 private:
  struct Device {
    const json* facts;
    Labels labels;
  };
  using Owner = Device;

  // Calls the function with the key of each exported figure, after starting its family.
  template <typename Row, std::size_t kFigures, typename Function>
  void ForEach(const server::Figure<Row> (&figures)[kFigures], const Function& function) {
    for (const server::Figure<Row>& figure : figures) {
      if (figure.family == nullptr) continue;
      text_.Begin(figure.family, figure.never_falls ? Type::kCounter : Type::kGauge, figure.help);
      function(figure.key);
    }
  }
  void AddNumber(const Labels& labels, const json& object, const char* key) {
    if (const std::optional<double> value = Number(object, key)) text_.Add(labels, *value);
  }

  void AddServer() {
    const json& server = Member(status_, "server");
    text_.Begin("gpushared_build", Type::kInfo, "The server's version and policy.");
    text_.Add({{"version", Text(server, "version")}, {"policy", Text(server, "policy")}}, 1);
    text_.Begin("gpushared_uptime_seconds", Type::kGauge, "Age of the broker.");
    AddNumber({}, server, "uptime_s");
    text_.Begin("gpushared_upgrades", Type::kGauge, "Number of upgrades of the broker.");
    AddNumber({}, server, "upgrades");
    text_.Begin("gpushared_admin_requests_rejected", Type::kCounter,
                "Requests of operators that were denied because a right was missing.");
    const json& rejected = Member(server, "rejected_requests");
    if (!rejected.is_object()) return;
    for (const auto& [verb, count] : rejected.items()) {
      if (count.is_number()) text_.Add({{"verb", verb}}, count.get<double>());
    }
  }

  void AddDevices() {
    text_.Begin(
        "gpushared_device_up", Type::kGauge,
        "1 while the device serves clients, including the last ones during a drain, otherwise 0.");
    for (const Device& device : devices_) {
      const std::string state = Text(*device.facts, "state");
      text_.Add(device.labels, state == "ready" || state == "draining" ? 1 : 0);
    }
    text_.Begin("gpushared_device_state", Type::kGauge,
                "1 for the current state of the device, 0 for the others. Drained: by an operator. "
                "Lost: the worker is starting, has died or is silent, or the device is missing.");
    for (const Device& device : devices_) {
      const std::string_view current = DeviceState(Text(*device.facts, "state"));
      for (const char* const state : kDeviceStates) {
        text_.Add(With(device.labels, "state", state), current == state ? 1 : 0);
      }
    }
    for (const Entry& entry : kOfDevice) {
      text_.Begin(entry.name, entry.type, entry.help);
      for (const Device& device : devices_) AddNumber(device.labels, *device.facts, entry.key);
    }
    const auto add = [&](const char* part) {
      return [this, part](const char* key) {
        for (const Device& device : devices_) {
          AddNumber(device.labels, Member(*device.facts, part), key);
        }
      };
    };
    ForEach(server::kOvercommitFigures, add("overcommit"));
    ForEach(server::kDeviceFigures, add("totals"));
    ForEach(server::kGpuFigures, add("gpu"));
    text_.Begin("gpushared_device_busy_seconds", Type::kCounter, "Device time charged to clients.");
    for (const Device& device : devices_) {
      const json& classes = Member(Member(*device.facts, "totals"), "classes");
      if (!classes.is_object()) continue;
      double busy = 0;
      for (const json& each : classes) busy += Number(each, "device_time_s").value_or(0);
      text_.Add(device.labels, busy);
    }
  }

  // Calls the function with the labels and the row of each class of a device, or of a part of the
  // device.
  template <typename Function>
  static void ForEachClass(const json& object, const Labels& labels, const Function& function) {
    const json& classes = Member(object, "classes");
    if (!classes.is_object()) return;
    for (const auto& [name, row] : classes.items()) function(With(labels, "class", name), row);
  }

  void AddClasses() {
    ForEach(server::kClassNowFigures, [&](const char* key) {
      for (const Device& device : devices_) {
        ForEachClass(*device.facts, device.labels,
                     [&](const Labels& labels, const json& row) { AddNumber(labels, row, key); });
      }
    });
    ForEach(server::kClassFigures, [&](const char* key) {
      for (const Device& device : devices_) {
        ForEachClass(Member(*device.facts, "totals"), device.labels,
                     [&](const Labels& labels, const json& row) { AddNumber(labels, row, key); });
      }
    });
    for (const server::HistogramFigure& figure : server::kClassHistograms) {
      text_.Begin(figure.family, Type::kHistogram, figure.help);
      for (const Device& device : devices_) {
        ForEachClass(Member(*device.facts, "totals"), device.labels,
                     [&](const Labels& labels, const json& row) {
                       AddHistogram(labels, Member(row, figure.key));
                     });
      }
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

  void AddEndpoints(const json& endpoints) {
    ForEach(server::kEndpointFigures, [&](const char* key) {
      for (const Device& device : devices_) {
        for (const json& row : Rows(Member(*device.facts, "totals"), "endpoints")) {
          AddNumber(With(With(device.labels, "endpoint", Text(row, "endpoint")), "class",
                         Text(row, "class")),
                    row, key);
        }
      }
    });
    text_.Begin("gpushared_endpoint_admitted", Type::kCounter, "Admitted clients.");
    for (const json& row : Rows(endpoints, "endpoints")) {
      AddNumber({{"endpoint", Text(row, "endpoint")}}, row, "admitted");
    }
    text_.Begin("gpushared_endpoint_rejected", Type::kCounter, "Rejected clients.");
    for (const json& row : Rows(endpoints, "endpoints")) {
      const json& rejected = Member(row, "rejected");
      if (!rejected.is_object()) continue;
      for (const auto& [code, count] : rejected.items()) {
        if (!count.is_number()) continue;
        text_.Add({{"endpoint", Text(row, "endpoint")}, {"code", code}}, count.get<double>());
      }
    }
  }

  void AddOwners() {
    const auto add = [&](const std::vector<Owner>& owners) {
      return [this, &owners](const char* key) {
        for (const Owner& owner : owners) AddNumber(owner.labels, *owner.facts, key);
      };
    };
    ForEach(server::kOwnerNowFigures, add(owners_now_));
    ForEach(server::kOwnerFigures, add(owners_));
  }

  const json& status_;
  const std::vector<double> bounds_ = Bounds();
  std::vector<Device> devices_;
  std::vector<Owner> owners_now_, owners_;
  Exposition text_;
};

}  // namespace

std::string MetricsText(const json& status, const json& endpoints, const std::string& host,
                        TextFormat format) {
  return Writer(status, host, format).Write(endpoints);
}

}  // namespace gpushared::web
