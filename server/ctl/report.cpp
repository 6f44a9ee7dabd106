// SPDX-License-Identifier: Apache-2.0
#include "server/ctl/report.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using nlohmann::json;

// How a column is made from one row of the reply.
struct Column {
  std::string_view heading;
  std::string_view field;
  double divisor = 0;  // 0: shown as it is. Else a number, divided.
  int decimals = 0;
  bool is_text = false;  // Aligned to the left.
};

constexpr double kMiB = 1024.0 * 1024.0;

constexpr std::array kClientColumns = {
    Column{"ID", "client"},
    Column{"NAME", "name", 0, 0, true},
    Column{"PID", "pid"},
    Column{"UID", "uid"},
    Column{"DEVICE", "device", 0, 0, true},
    Column{"CLASS", "class", 0, 0, true},
    Column{"WEIGHT", "weight"},
    Column{"STATE", "state", 0, 0, true},
    Column{"DEVICE TIME s", "device_time_s", 1, 3},
    Column{"LAUNCHES", "launches"},
    Column{"IN MiB", "bytes_in", kMiB, 1},
    Column{"OUT MiB", "bytes_out", kMiB, 1},
    Column{"ON DEVICE MiB", "bytes_on_device", kMiB, 1},
    Column{"MEMORY MiB", "memory_bytes", kMiB, 1},
    Column{"QUOTA MiB", "quota_bytes", kMiB, 0},
    Column{"ISOLATION", "isolation", 0, 0, true},
    Column{"WAIT p50 us", "queue_wait_p50_us", 1, 1},
    Column{"WAIT p99 us", "queue_wait_p99_us", 1, 1},
    Column{"OVERRUNS", "slice_overruns"},
    Column{"STOPS", "stops"},
    Column{"SHARE ERROR pp", "share_error_points", 1, 1},
    Column{"KEPT %", "promise_kept_percent", 1, 1},
    Column{"REQUEST p99 us", "request_p99_us", 1, 1},
};
constexpr std::array kDeviceColumns = {
    Column{"DEVICE", "device", 0, 0, true},
    Column{"KIND", "kind", 0, 0, true},
    Column{"STATE", "state", 0, 0, true},
    Column{"CLIENTS", "sessions"},
    Column{"MEMORY MiB", "memory_bytes", kMiB, 0},
    Column{"SMS", "multiprocessors"},
    Column{"WORKER PID", "worker_pid"},
    Column{"GENERATION", "generation"},
    Column{"UP s", "up_s", 1, 0},
    Column{"PCI BUS", "pci_bus", 0, 0, true},
    Column{"UUID", "uuid", 0, 0, true},
    Column{"NAME", "name", 0, 0, true},
};
constexpr std::array kStatusColumns = {
    Column{"DEVICE", "device", 0, 0, true},
    Column{"STATE", "state", 0, 0, true},
    Column{"CLIENTS", "sessions"},
    Column{"DEVICE TIME s", "device_time_s", 1, 3},
    Column{"COMMANDS", "commands"},
    Column{"GAP USED %", "gap_used_percent", 1, 1},
    Column{"WINDOW us", "window_us", 1, 0},
    Column{"OVERLOADED", "overloaded"},
    Column{"USED MiB", "mapped_bytes", kMiB, 1},
    Column{"MEMORY MiB", "memory_bytes", kMiB, 0},
    Column{"WORKER PID", "worker_pid"},
    Column{"GENERATION", "generation"},
};

// Names come from clients. The server checks them; a terminal deserves a second look.
std::string Printable(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    result += is_control ? '?' : c;
  }
  return result;
}

// Characters, not bytes: continuation bytes of UTF-8 take no room on the terminal.
std::size_t Width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned>(c) & 0xc0U) != 0x80U;
  }));
}

std::string Cell(const json& row, const Column& column) {
  const auto field = row.find(column.field);
  if (field == row.end() || field->is_null()) return "-";
  if (column.divisor != 0 && field->is_number()) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.*f", column.decimals,
                  field->get<double>() / column.divisor);
    return text.data();
  }
  if (field->is_string()) return Printable(field->get_ref<const std::string&>());
  return field->dump();
}

std::string Padded(const std::string& text, std::size_t width, bool left) {
  const std::string blanks(width - std::min(width, Width(text)), ' ');
  return left ? text + blanks : blanks + text;
}

std::string Table(const json& rows, std::span<const Column> columns) {
  std::vector<std::vector<std::string>> cells(1);
  for (const Column& column : columns) cells[0].emplace_back(column.heading);
  for (const json& row : rows) {
    if (!row.is_object()) continue;
    std::vector<std::string>& line = cells.emplace_back();
    for (const Column& column : columns) line.push_back(Cell(row, column));
  }
  std::string text;
  for (const std::vector<std::string>& line : cells) {
    std::string out;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      std::size_t width = 0;
      for (const std::vector<std::string>& any : cells) width = std::max(width, Width(any[i]));
      out += (i == 0 ? "" : "  ") + Padded(line[i], width, columns[i].is_text);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + "\n";
  }
  return text;
}

json Part(const json& reply, std::string_view name) {
  const auto found = reply.find(name);
  return found == reply.end() ? json() : *found;
}

std::string TextOf(const json& object, std::string_view name) {
  return Cell(object, Column{.heading = name, .field = name});
}

// Warnings about a reply that is not whole.
std::string Caveats(const json& reply) {
  std::string text;
  for (const json& device : Part(reply, "silent_devices")) {
    if (device.is_string()) {
      text += "the worker of " + Printable(device.get_ref<const std::string&>()) +
              " did not answer in time; its figures are missing\n";
    }
  }
  const json omitted = Part(reply, "omitted");
  if (omitted.is_number()) text += omitted.dump() + " further clients are not shown\n";
  return text;
}

}  // namespace

std::string StatusReport(const json& reply) {
  const json server = Part(reply, "server");
  std::string text;
  if (server.is_object()) {
    const std::string uptime =
        Cell(server, Column{.heading = "", .field = "uptime_s", .divisor = 1, .decimals = 0});
    text += "gpushared " + TextOf(server, "version") + " at " + TextOf(server, "socket") +
            " (pid " + TextOf(server, "pid") + "): " + TextOf(server, "state") + ", policy " +
            TextOf(server, "policy") + ", up " + uptime + " s, clients " +
            TextOf(server, "sessions") + "\n\n";
  }
  return text + Table(Part(reply, "devices"), kStatusColumns) + Caveats(reply);
}

std::string ClientsReport(const json& reply) {
  return Table(Part(reply, "clients"), kClientColumns) + Caveats(reply);
}

namespace {

// "14.0 ms"; "-" when it is not there.
std::string Time(const json& object, std::string_view field) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_number()) return "-";
  const double us = found->get<double>();
  std::array<char, 64> text{};
  if (us >= 1000) {
    std::snprintf(text.data(), text.size(), "%.1f ms", us / 1000);
  } else {
    std::snprintf(text.data(), text.size(), "%.1f us", us);
  }
  return text.data();
}

std::string WhoText(const json& object) {
  std::string text = "client " + TextOf(object, "client");
  if (!object.contains("name")) return text + " (it has left)";
  return text + " '" + TextOf(object, "name") + "' (" + TextOf(object, "class") + ")";
}

std::string WaitText(const json& wait) {
  std::string text = "  the longest wait, " + Time(wait, "us") + ", was ";
  const json behind = Part(wait, "behind");
  if (!behind.is_object()) return text + "not behind a command of another client that ended\n";
  text += "behind " + (behind.contains("what") ? TextOf(behind, "what") : "a command") + " of " +
          WhoText(behind) + ": " + Time(behind, "on_device_us") + " on the device, predicted " +
          Time(behind, "predicted_us") + "; it " + TextOf(behind, "cut");
  if (behind.contains("stop_latency_us")) text += ", which took " + Time(behind, "stop_latency_us");
  return text + "\n";
}

}  // namespace

std::string ExplainReport(const json& reply) {
  std::string text = "request " + TextOf(reply, "request") + " of " + WhoText(reply) + " took " +
                     Time(reply, "latency_us");
  if (reply.contains("promise_us")) {
    const json kept = Part(reply, "kept");
    text += ", promised " + Time(reply, "promise_us") +
            (kept.is_boolean() && kept.get<bool>() ? ": kept" : ": not kept");
  }
  const json failed = Part(reply, "failed");
  if (failed.is_boolean() && failed.get<bool>()) text += "; its stream failed";
  text += "\n  " + Time(reply, "before_us") + " before it was begun here\n  " +
          Time(reply, "waited_us") + " waiting for the device, with commands ready\n  " +
          Time(reply, "on_device_us") + " on the device: " + TextOf(reply, "commands") +
          " commands, charged " + Time(reply, "device_time_us") + "\n  " + Time(reply, "host_us") +
          " with nothing ready: the client's own time\n";
  if (const json wait = Part(reply, "longest_wait"); wait.is_object()) text += WaitText(wait);
  if (const json longest = Part(reply, "longest_command"); longest.is_object()) {
    text += "  its longest command: " + TextOf(longest, "what") + ", " + Time(longest, "us") + "\n";
  }
  const json others = Part(reply, "others");
  for (const json& other : others) {
    if (!other.is_object()) continue;
    text += "  meanwhile " + WhoText(other) + " had " + Time(other, "device_time_us") + "\n";
  }
  if (others.empty()) text += "  meanwhile nobody else was charged for the device\n";
  const json cut = Part(reply, "is_cut");
  if (cut.is_boolean() && cut.get<bool>()) {
    text += "  more went on than the server remembers: commands are those of the end\n";
  }
  return text;
}

std::string DevicesReport(const json& reply) {
  std::string text = Table(Part(reply, "devices"), kDeviceColumns);
  for (const json& device : Part(reply, "devices")) {
    for (const json& limit : Part(device, "sm_limits")) {
      text += TextOf(device, "device") + ": class " + TextOf(limit, "class") + " has " +
              TextOf(limit, "granted") + " of " + TextOf(device, "multiprocessors") +
              " multiprocessors, asked for " + TextOf(limit, "asked") + "\n";
    }
  }
  for (const json& device : Part(reply, "devices")) {
    if (!device.is_object() || !device.contains("missing")) continue;
    text += "missing: " + TextOf(device, "device") + ": " + TextOf(device, "missing") + "\n";
  }
  for (const json& device : Part(reply, "unused_devices")) {
    if (!device.is_object()) continue;
    text += "not used: " + TextOf(device, "device") + ", " + TextOf(device, "name") + ": " +
            TextOf(device, "why") + "\n";
  }
  return text + Caveats(reply);
}

}  // namespace gpushared::server
