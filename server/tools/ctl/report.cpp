// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/report.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "server/telemetry/admin/json_fields.h"
#include "server/tools/ctl/waterfall.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using admin::Member;
using nlohmann::json;

constexpr double kMiB = 1024.0 * 1024.0;

// The default columns fit a terminal of 80 characters. With --wide, further columns are shown
// between them.
constexpr std::array kClientColumns = {
    Column{"ID", "client"},
    Column{"NAME", "name", 0, 0, true},
    Column{"PID", "pid"},
    Column{"USER", "user", 0, 0, true},
    Column{"UID", "uid", 0, 0, false, false},
    Column{"PROGRAM", "program", 0, 0, true, false},
    Column{"JOB", "hpc_job", 0, 0, true, false},
    Column{"STEP", "hpc_step", 0, 0, true, false},
    Column{"NAMESPACE", "namespace", 0, 0, true, false},
    Column{"POD", "pod", 0, 0, true, false},
    Column{"CONTAINER", "container", 0, 0, true, false},
    Column{"DEVICE", "device", 0, 0, true},
    Column{"ENDPOINT", "endpoint", 0, 0, true, false},
    Column{"CLASS", "class", 0, 0, true},
    Column{"WEIGHT", "weight", 0, 0, false, false},
    Column{"MAX SHARE %", "max_share_percent", 1, 1, false, false},
    Column{"MODE", "mode", 0, 0, true, false},
    Column{"STATE", "state", 0, 0, true, false},
    Column{"SHARE %", "device_share_percent", 1, 1},
    Column{.heading = "DEVICE TIME", .field = "device_time_s", .is_usual = false, .time_us = 1e6},
    Column{"ENERGY J", "energy_j", 1, 1, false, false},
    Column{"LAUNCHES", "launches", 0, 0, false, false},
    Column{"IN MiB", "bytes_in", kMiB, 1, false, false},
    Column{"OUT MiB", "bytes_out", kMiB, 1, false, false},
    Column{"ON DEVICE MiB", "bytes_on_device", kMiB, 1, false, false},
    Column{"MEMORY MiB", "memory_bytes", kMiB, 1},
    Column{"RESIDENT MiB", "resident_bytes", kMiB, 1, false, false},
    Column{"GUARANTEED MiB", "guaranteed_bytes", kMiB, 0, false, false},
    Column{"QUOTA MiB", "quota_bytes", kMiB, 0, false, false},
    Column{.heading = "MEMORY WAIT", .field = "memory_waited_s", .is_usual = false, .time_us = 1e6},
    Column{"WAKES", "wakes", 0, 0, false, false},
    Column{"WAKES IN TIME", "wakes_in_time", 0, 0, false, false},
    Column{.heading = "LAST WAKE", .field = "last_wake_s", .is_usual = false, .time_us = 1e6},
    Column{
        .heading = "PROMISED WAKE", .field = "promised_wake_s", .is_usual = false, .time_us = 1e6},
    Column{"ISOLATION", "isolation", 0, 0, true, false},
    Column{.heading = "WAIT p50", .field = "queue_wait_p50_us", .is_usual = false, .time_us = 1},
    Column{.heading = "WAIT p99", .field = "queue_wait_p99_us", .time_us = 1},
    Column{"OVERRUNS", "event_overruns", 0, 0, false, false},
    Column{"STOPS", "stops", 0, 0, false, false},
    Column{"PASSES", "passes", 0, 0, false, false},
    Column{.heading = "NON-PREEMPTIBLE",
           .field = "nonpreemptible_s",
           .is_usual = false,
           .time_us = 1e6},
    Column{"NON-PREEMPTIBLE KERNEL", "nonpreemptible_kernel", 0, 0, true, false},
    Column{"WHY NOT", "nonpreemptible_why", 0, 0, true, false},
    Column{"SHARE ERROR pp", "share_error_points", 1, 1, false, false},
    Column{"MET %", "target_met_percent", 1, 1, false, false},
    Column{.heading = "REQUEST p99", .field = "request_p99_us", .is_usual = false, .time_us = 1},
};
constexpr std::array kDeviceColumns = {
    Column{"DEVICE", "device", 0, 0, true},
    Column{"KIND", "kind", 0, 0, true, false},
    Column{"STATE", "state", 0, 0, true},
    Column{"CLIENTS", "sessions"},
    Column{"MEMORY MiB", "memory_bytes", kMiB, 0},
    Column{"SMS", "multiprocessors", 0, 0, false, false},
    Column{"WORKER PID", "worker_pid"},
    Column{"GENERATION", "generation", 0, 0, false, false},
    Column{.heading = "UP", .field = "up_s", .time_us = 1e6},
    Column{"PCI BUS", "pci_bus", 0, 0, true, false},
    Column{"UUID", "uuid", 0, 0, true, false},
    Column{"NAME", "name", 0, 0, true},
};
constexpr std::array kEndpointColumns = {
    Column{"ENDPOINT", "endpoint", 0, 0, true},
    Column{"CLASS", "class", 0, 0, true},
    Column{"HIGHEST", "highest_class", 0, 0, true, false},
    Column{"WEIGHT", "weight"},
    Column{"MAX SHARE %", "max_share_percent", 1, 1, false, false},
    Column{"MEMORY", "memory", 0, 0, true},
    Column{"PER CLIENT", "client_memory", 0, 0, true, false},
    Column{"PER CLIENT %", "client_max_share_percent", 1, 1, false, false},
    Column{"CLIENTS", "sessions"},
    Column{"MOST", "clients_max"},
    Column{"ADMITTED", "admitted"},
    Column{"REJECTED", "rejected", 0, 0, true, false},
    Column{"LESSEE", "lessee", 0, 0, true, false},
    Column{"WHO", "who", 0, 0, true},
    Column{"DEVICES", "devices", 0, 0, true, false},
    Column{"SOCKET", "socket", 0, 0, true, false},
};
constexpr std::array kStatusColumns = {
    Column{"DEVICE", "device", 0, 0, true},
    Column{"STATE", "state", 0, 0, true},
    Column{"CLIENTS", "sessions"},
    Column{.heading = "DEVICE TIME", .field = "device_time_s", .time_us = 1e6},
    Column{"COMMANDS", "commands", 0, 0, false, false},
    Column{"GAP USED %", "gap_used_percent", 1, 1},
    Column{.heading = "WINDOW", .field = "lookahead_us", .is_usual = false, .time_us = 1},
    Column{"OVERLOADED", "overloaded", 0, 0, false, false},
    Column{"USED MiB", "mapped_bytes", kMiB, 1},
    Column{"MEMORY MiB", "memory_bytes", kMiB, 0},
    Column{"WORKER PID", "worker_pid", 0, 0, false, false},
    Column{"GENERATION", "generation", 0, 0, false, false},
};

std::string GetText(const json& object, std::string_view name) {
  return Cell(object, Column{.heading = name, .field = name});
}

// Returns warnings about an incomplete answer.
std::string Caveats(const json& reply) {
  std::string text;
  for (const json& device : Member(reply, "silent_devices")) {
    if (device.is_string()) {
      text += "the worker of " + Printable(device.get_ref<const std::string&>()) +
              " did not answer in time; its figures are missing\n";
    }
  }
  return text;
}

}  // namespace

std::span<const Column> StatusColumns() { return kStatusColumns; }
std::span<const Column> ClientColumns() { return kClientColumns; }
std::span<const Column> DeviceColumns() { return kDeviceColumns; }

std::span<const Column> EndpointColumns() { return kEndpointColumns; }

std::string StatusReport(const json& reply, const View& view) {
  const json& server = Member(reply, "server");
  std::string text;
  if (server.is_object()) {
    const std::string uptime =
        Cell(server, Column{.heading = "", .field = "uptime_s", .time_us = 1e6});
    text += "gpushared " + GetText(server, "version") + " at " + GetText(server, "socket") +
            " (pid " + GetText(server, "pid") + "): " + GetText(server, "state") + ", policy " +
            GetText(server, "policy") + ", up " + uptime + ", clients " +
            GetText(server, "sessions") + "\n\n";
  }
  return text + Table(Member(reply, "devices"), kStatusColumns, view) + Caveats(reply);
}

std::string ClientsReport(const json& reply, const View& view) {
  json clients = Member(reply, "clients");
  // The kernel reports no pid for a process in a PID namespace that is not visible to the server.
  for (json& client : clients) {
    if (!client.is_object()) continue;
    if (client.value("pid", json()) == 0) client["pid"] = "elsewhere";
  }
  return Table(clients, kClientColumns, view) + Caveats(reply);
}

void AddShares(json& reply, const json& earlier) {
  const auto rows = reply.find("clients");
  const auto before = earlier.find("clients");
  if (rows == reply.end() || before == earlier.end()) return;
  const auto number = [](const json& row, const char* field) {
    return admin::Number(row, field).value_or(0);
  };
  for (json& row : *rows) {
    for (const json& old : *before) {
      const double passed = number(row, "connected_s") - number(old, "connected_s");
      if (number(row, "client") != number(old, "client") || passed <= 0) continue;
      const double had = number(row, "device_time_s") - number(old, "device_time_s");
      row["device_share_percent"] = std::clamp(100 * had / passed, 0.0, 100.0);
    }
  }
}

std::string EndpointsReport(const json& reply, const View& view) {
  return Table(Member(reply, "endpoints"), kEndpointColumns, view);
}

namespace {

// Formats a time such as "14.0 ms"; "-" if the field is missing.
std::string Time(const json& object, std::string_view field) {
  const std::optional<double> time = admin::Number(object, field);
  return time ? TimeText(*time) : "-";
}

// Formats a time in seconds.
std::string SecondsText(const json& seconds) { return TimeText(1e6 * seconds.get<double>()); }

std::string WhoText(const json& object) {
  std::string text = "client " + GetText(object, "client");
  if (!object.contains("name")) return text + " (it has left)";
  return text + " '" + GetText(object, "name") + "' (" + GetText(object, "class") + ")";
}

std::string WaitText(const json& wait) {
  std::string text = "  the longest wait, " + Time(wait, "us") + ", was ";
  const json& behind = Member(wait, "behind");
  if (!behind.is_object()) {
    return text + "not caused by another client\n";
  }
  text += "behind " + (behind.contains("what") ? GetText(behind, "what") : "a command") + " of " +
          WhoText(behind) + ": " + Time(behind, "on_device_us") + " on the device, predicted " +
          Time(behind, "predicted_us") + "; it " + GetText(behind, "cut");
  if (behind.contains("stop_latency_us")) text += ", which took " + Time(behind, "stop_latency_us");
  return text + "\n";
}

// Formats text such as ": 2150.0 MiB of "; empty if the value is missing or zero.
std::string MebibytesText(const char* before, const json& bytes) {
  if (!bytes.is_number_unsigned() || bytes == 0) return "";
  std::array<char, 64> size{};
  std::snprintf(size.data(), size.size(), "%s%.1f MiB of ", before, bytes.get<double>() / kMiB);
  return size.data();
}

// Formats text such as "waited 180.0 ms for memory: 2150.0 MiB of client 7 'train' swapped out,
// 2048.0 MiB of its own swapped in"
std::string MemoryText(const json& memory) {
  std::string text = "waited " + Time(memory, "waited_us") + " for memory";
  const std::string out = MebibytesText(": ", Member(memory, "swapped_out_bytes"));
  if (!out.empty()) text += out + WhoText(Member(memory, "swapped_out")) + " swapped out";
  const std::string in =
      MebibytesText(out.empty() ? ": " : ", ", Member(memory, "swapped_in_bytes"));
  if (!in.empty()) text += in + "its own swapped in";
  if (const json& wakes = Member(memory, "wakes"); wakes.is_number()) {
    text += wakes == Member(memory, "wakes_in_time")
                ? "; it was parked, and woken in the promised time"
                : "; it was parked";
  }
  return text + "\n  ";
}

// Describes the uncharged part of the request's time on the device.
std::string UnchargedText(const json& reply) {
  const auto number = [&](const char* field) { return admin::Number(reply, field).value_or(0); };
  const double rest = number("on_device_us") - number("device_time_us");
  const double stolen = std::clamp(number("host_steal_us"), 0.0, std::max(rest, 0.0));
  std::string text;
  if (stolen >= 1) {
    text += "    " + TimeText(stolen) + " of that the host ran other programs (host steal)\n";
  }
  if (rest - stolen >= 1) {
    text += "    " + TimeText(rest - stolen) + " of that were other clients' at the same time\n";
  }
  return text;
}

}  // namespace

std::string ParkedReport(const json& reply) {
  const std::string client = "client " + GetText(reply, "client");
  if (!reply.value("parked", false)) return client + " returns to the device\n";
  const json& bytes = Member(reply, "bytes");
  const json& promised = Member(reply, "promised_wake_s");
  return client + " is parked: " + MebibytesText("", bytes) + "device memory go to the host; " +
         (promised.is_number()
              ? "a wake takes at most " + SecondsText(promised)
              : std::string("how long a wake takes is not known yet, or depends on "
                            "other clients")) +
         (reply.value("held", false) ? "; its commands wait for `gpusharedctl wake`\n"
                                     : "; its next command wakes it\n");
}

std::string MovedReport(const json& reply) {
  const std::string memory = MebibytesText(" with ", Member(reply, "bytes"));
  return "client " + GetText(reply, "client") + " was moved from " + GetText(reply, "from") +
         " to " + GetText(reply, "to") + (memory.empty() ? memory : memory + "device memory") +
         "; it was stopped for " + SecondsText(Member(reply, "stopped_s")) + "\n";
}

std::string ExplainReport(const json& reply) {
  const json& open = Member(reply, "open");
  const bool is_open = open.is_boolean() && open.get<bool>();
  std::string text = "request " + GetText(reply, "request") + " of " + WhoText(reply) +
                     (is_open ? " has not ended: so far it took " : " took ") +
                     Time(reply, "latency_us");
  if (reply.contains("latency_target_us")) {
    const json& met = Member(reply, "target_met");
    text += ", target " + Time(reply, "latency_target_us");
    if (met.is_boolean()) text += met.get<bool>() ? ": met" : ": missed";
  }
  const json& failed = Member(reply, "failed");
  if (failed.is_boolean() && failed.get<bool>()) text += "; its stream failed";
  text += "\n  " + Time(reply, "before_us") +
          " in the client's own queue, from its arrival until the server began it\n  " +
          Time(reply, "waited_us") + " waiting for the device, with commands ready\n  ";
  if (reply.contains("throttled_us")) {
    text += "waited " + Time(reply, "throttled_us") + ": its max_share of " +
            GetText(reply, "max_share_percent") + " %\n  ";
  }
  if (const json& memory = Member(reply, "memory"); memory.is_object()) text += MemoryText(memory);
  text += Time(reply, "on_device_us") + " on the device: " + GetText(reply, "commands") +
          " commands, charged " + Time(reply, "device_time_us") + "\n" + UnchargedText(reply) +
          "  " + Time(reply, "host_us") + " with nothing ready: the client's own time\n";
  if (const json& wait = Member(reply, "longest_wait"); wait.is_object()) text += WaitText(wait);
  if (const json& longest = Member(reply, "longest_command"); longest.is_object()) {
    text +=
        "  its longest command: " + GetText(longest, "what") + ", " + Time(longest, "us") + "\n";
  }
  const json& others = Member(reply, "others");
  for (const json& other : others) {
    if (!other.is_object()) continue;
    text += "  meanwhile " + WhoText(other) + " had " + Time(other, "device_time_us") + "\n";
  }
  if (others.empty()) text += "  meanwhile no other client was charged for the device\n";
  const json& cut = Member(reply, "is_cut");
  if (cut.is_boolean() && cut.get<bool>()) {
    text += "  the server no longer has all records: commands are only those near the end\n";
  }
  return text + WaterfallText(reply);
}

std::string DevicesReport(const json& reply, const View& view) {
  std::string text = Table(Member(reply, "devices"), kDeviceColumns, view);
  for (const json& device : Member(reply, "devices")) {
    for (const json& limit : Member(device, "sm_limits")) {
      text += GetText(device, "device") + ": class " + GetText(limit, "class") + " has " +
              GetText(limit, "granted") + " of " + GetText(device, "multiprocessors") +
              " multiprocessors, asked for " + GetText(limit, "asked") + "\n";
    }
  }
  for (const json& device : Member(reply, "devices")) {
    if (!device.is_object() || !device.contains("missing")) continue;
    text += "missing: " + GetText(device, "device") + ": " + GetText(device, "missing") + "\n";
  }
  for (const json& device : Member(reply, "unused_devices")) {
    if (!device.is_object()) continue;
    text += "not used: " + GetText(device, "device") + ", " + GetText(device, "name") + ": " +
            GetText(device, "why") + "\n";
  }
  return text + Caveats(reply);
}

}  // namespace gpushared::server
