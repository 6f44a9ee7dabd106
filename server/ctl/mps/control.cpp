// SPDX-License-Identifier: Apache-2.0
#include "server/ctl/mps/control.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <span>
#include <string_view>
#include <thread>

#include "server/admin/ask.h"
#include "server/ctl/mps/input.h"
#include "server/ctl/table.h"

#include <nlohmann/json.hpp>

namespace gpushared::server::mps {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookAgain{50};

constexpr Column kPsColumns[] = {
    {.heading = "PID", .field = "pid"},
    {.heading = "ID", .field = "client"},
    {.heading = "SERVER", .field = "worker_pid"},
    {.heading = "DEVICE", .field = "device_uuid", .is_text = true},
    {.heading = "NAMESPACE", .field = "entrance", .is_text = true},
    {.heading = "COMMAND", .field = "name", .is_text = true},
};
constexpr Column kDeviceColumns[] = {
    {.heading = "ORDINAL", .field = "ordinal"},
    {.heading = "UUID", .field = "shown_uuid", .is_text = true},
    {.heading = "NAME", .field = "name", .is_text = true},
    {.heading = "SERVER", .field = "worker_pid"},
    {.heading = "SMS", .field = "multiprocessors"},
};

std::uint64_t NumberOf(const json& row, const char* field) {
  const auto found = row.find(field);
  return found != row.end() && found->is_number_unsigned() ? found->get<std::uint64_t>()
         : found != row.end() && found->is_number_integer()
             ? static_cast<std::uint64_t>(std::max<std::int64_t>(found->get<std::int64_t>(), 0))
             : 0;
}

std::string TextOf(const json& row, const char* field) {
  const auto found = row.find(field);
  return found != row.end() && found->is_string() ? found->get<std::string>() : "";
}

// A cpu device has none: its name identifies it.
std::string UuidOf(const json& device) {
  const std::string uuid = TextOf(device, "uuid");
  return uuid.empty() ? TextOf(device, "device") : uuid;
}

// Each process once, in the order of the clients.
std::string PidLines(const json& clients, std::uint64_t worker) {
  std::string text;
  std::set<std::uint64_t> told;
  for (const json& client : clients) {
    const std::uint64_t pid = NumberOf(client, "pid");
    if (NumberOf(client, "worker_pid") == worker && told.insert(pid).second) {
      text += std::to_string(pid) + "\n";
    }
  }
  return text;
}

// In one line, for scripts; a name has no comma, or it would be another column.
std::string CommaSeparated(const json& rows, std::span<const Column> columns) {
  std::string text;
  for (const Column& column : columns) {
    text += (text.empty() ? "" : ",") + std::string(column.heading);
  }
  text += "\n";
  for (const json& row : rows) {
    std::string line;
    for (const Column& column : columns) {
      std::string cell = Cell(row, column);
      std::ranges::replace(cell, ',', ' ');
      line += (&column == columns.data() ? "" : ",") + cell;
    }
    text += line + "\n";
  }
  return text;
}

Status Refused(const std::string& sentence) { return {StatusCode::kInvalidArgument, sentence}; }

}  // namespace

struct Control::Command {
  std::string_view name, usage;
  std::size_t least, most;  // Arguments.
  Result<Answer> (Control::*carry_out)(const Arguments& arguments) const;
};

const std::vector<Control::Command>& Control::Commands() {
  static const std::vector<Command> kCommands = {
      {"get_server_list", "", 0, 0, &Control::ServerList},
      {"get_server_status", "PID", 1, 1, &Control::ServerStatus},
      {"start_server", "-uid UID", 2, 3, &Control::StartServer},
      {"shutdown_server", "[PID] [-f]", 0, 2, &Control::ShutDownServer},
      {"quit", "[-t SECONDS]", 0, 2, &Control::Quit},
      {"get_client_list", "PID", 1, 1, &Control::ClientList},
      {"get_device_client_list", "[PID]", 0, 1, &Control::DeviceClientList},
      {"ps", "[-p PID]", 0, 2, &Control::Ps},
      {"terminate_client", "SERVER_PID CLIENT_PID", 2, 2, &Control::TerminateClient},
      {"set_default_active_thread_percentage", "PERCENT", 1, 1, &Control::SetDefaultShare},
      {"get_default_active_thread_percentage", "", 0, 0, &Control::GetDefaultShare},
      {"set_active_thread_percentage", "PID PERCENT", 2, 2, &Control::SetShare},
      {"get_active_thread_percentage", "PID", 1, 1, &Control::GetShare},
      {"set_default_device_pinned_mem_limit", "DEVICE LIMIT", 2, 2, &Control::SetDefaultMemory},
      {"get_default_device_pinned_mem_limit", "DEVICE", 1, 1, &Control::GetDefaultMemory},
      {"set_device_pinned_mem_limit", "PID DEVICE LIMIT", 3, 3, &Control::SetMemory},
      {"get_device_pinned_mem_limit", "PID DEVICE", 2, 2, &Control::GetMemory},
      {"set_default_client_priority", "0|1", 1, 1, &Control::SetPriority},
      {"get_default_client_priority", "", 0, 0, &Control::GetPriority},
      {"device_query", "[PID] [--csv]", 0, 2, &Control::DeviceQuery},
      {"sm_partition", "add|rm DEVICE CHUNKS|PARTITION", 3, 3, &Control::Partition},
      {"lspart", "", 0, 0, &Control::Partitions},
      {"help", "", 0, 0, &Control::ShowHelp},
  };
  return kCommands;
}

std::string Control::Help() {
  std::string text;
  for (const Command& command : Commands()) {
    text += "  " + std::string(command.name) + (command.usage.empty() ? "" : " ") +
            std::string(command.usage) + "\n";
  }
  return text;
}

Result<Answer> Control::Do(const std::vector<std::string>& words) const {
  const auto found = std::ranges::find(Commands(), words.front(), &Command::name);
  if (found == Commands().end()) {
    return Refused("command '" + words.front() + "' refused: there is none of this name; see help");
  }
  const std::size_t given = words.size() - 1;
  if (given < found->least || given > found->most) {
    return Refused(words.front() + " refused: it has " + std::to_string(given) +
                   " arguments, allowed is: " + words.front() + " " + std::string(found->usage));
  }
  return (this->*found->carry_out)(Arguments(words.begin() + 1, words.end()));
}

Result<Answer> Control::ShowHelp(const Arguments&) const { return Answer{.text = Help()}; }

Result<json> Control::Ask(const ipc::Admin& question) const {
  return admin::Ask(socket_, question);
}

Result<json> Control::Rows(ipc::AdminVerb verb, const char* name) const {
  Result<json> answer = Ask({.verb = verb});
  if (!answer.ok()) return answer.status();
  const json rows = answer->value(name, json());
  const bool are_objects =
      rows.is_array() && std::ranges::all_of(rows, [](const json& row) { return row.is_object(); });
  if (are_objects) return rows;
  return Status(StatusCode::kProtocolViolation,
                std::string("the server's answer has no list of ") + name);
}

Result<json> Control::Devices() const { return Rows(ipc::AdminVerb::kDevices, "devices"); }

Result<json> Control::Clients() const { return Rows(ipc::AdminVerb::kClients, "clients"); }

Result<json> Control::ServerOf(const std::string& pid) const {
  const Result<std::uint64_t> number = Number(pid, "PID of a server", 1, kPidMax);
  if (!number.ok()) return number.status();
  const Result<json> devices = Devices();
  if (!devices.ok()) return devices.status();
  for (const json& device : *devices) {
    if (NumberOf(device, "worker_pid") == *number) return device;
  }
  return Status(StatusCode::kNotFound, "server " + pid + " is not here; see get_server_list");
}

Result<json> Control::DeviceNamed(const std::string& name) const {
  const Result<json> devices = Devices();
  if (!devices.ok()) return devices.status();
  const bool is_ordinal = std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
  for (std::size_t i = 0; i < devices->size(); ++i) {
    const json& device = (*devices)[i];
    const bool is_it = is_ordinal ? name == std::to_string(i)
                                  : name == UuidOf(device) || name == TextOf(device, "device");
    if (is_it) return device;
  }
  return Status(StatusCode::kNotFound, "device '" + name + "' is not here; see device_query");
}

Result<Answer> Control::ServerList(const Arguments&) const {
  const Result<json> devices = Devices();
  if (!devices.ok()) return devices.status();
  Answer answer;
  for (const json& device : *devices) {
    const std::uint64_t pid = NumberOf(device, "worker_pid");
    if (pid > 0) answer.text += std::to_string(pid) + "\n";
  }
  return answer;
}

Result<Answer> Control::ServerStatus(const Arguments& arguments) const {
  const Result<json> device = ServerOf(arguments[0]);
  if (!device.ok()) return device.status();
  const std::string state = TextOf(*device, "state");
  return Answer{.text = state == "ready"      ? "ACTIVE\n"
                        : state == "starting" ? "INITIALIZING\n"
                                              : "FAULT\n"};
}

Result<Answer> Control::StartServer(const Arguments& arguments) const {
  if (arguments[0] != "-uid" || arguments.size() != 2) {
    return Refused("start_server refused: allowed is -uid UID alone; devices are not divided");
  }
  const Result<std::uint64_t> uid = Number(arguments[1], "uid", 0, kUidMax);
  if (!uid.ok()) return uid.status();
  const Result<json> devices = Devices();
  if (!devices.ok()) return devices.status();
  return Answer{.note =
                    "start_server: nothing to do: each device has its server already, and it "
                    "serves all users"};
}

Result<Answer> Control::ShutDownServer(const Arguments& arguments) const {
  bool at_once = false;
  std::string pid;
  for (const std::string& argument : arguments) {
    if (argument == "-f" && !at_once) {
      at_once = true;
    } else if (pid.empty()) {
      pid = argument;
    } else {
      return Refused("shutdown_server refused: allowed is: shutdown_server [PID] [-f]");
    }
  }
  if (!pid.empty()) {
    const Result<json> device = ServerOf(pid);
    if (!device.ok()) return device.status();
    const Result<json> devices = Devices();
    if (!devices.ok()) return devices.status();
    if (devices->size() > 1) {
      return Refused("shutdown_server refused: server " + pid + " is one of " +
                     std::to_string(devices->size()) +
                     " that start and end together; shutdown_server without PID ends all");
    }
  }
  if (at_once) return End(0);
  return Quit({});
}

Result<Answer> Control::Quit(const Arguments& arguments) const {
  if (arguments.empty()) {
    const Result<json> drained = Ask({.verb = ipc::AdminVerb::kDrain});
    if (!drained.ok()) return drained.status();
    return Answer{.note = "quit: no new clients; the server ends with the last of " +
                          std::to_string(NumberOf(*drained, "sessions")) + " sessions",
                  .is_end = true};
  }
  if (arguments[0] != "-t" || arguments.size() != 2) {
    return Refused("quit refused: allowed is: quit [-t SECONDS]");
  }
  const Result<std::uint64_t> seconds = Number(arguments[1], "timeout", 0, kSecondsMax, " seconds");
  if (!seconds.ok()) return seconds.status();
  return End(*seconds);
}

Result<Answer> Control::End(std::uint64_t seconds) const {
  const Result<json> drained = Ask({.verb = ipc::AdminVerb::kDrain});
  if (!drained.ok()) return drained.status();
  const steady_clock::time_point deadline = steady_clock::now() + std::chrono::seconds(seconds);
  while (true) {
    const Result<json> clients = Clients();
    if (!clients.ok()) {
      if (!admin::NobodyAnswers(clients.status())) return clients.status();
      return Answer{.is_end = true};  // It has ended.
    }
    if (steady_clock::now() >= deadline) {
      for (const json& client : *clients) {
        const Result<json> ended =
            Ask({.verb = ipc::AdminVerb::kTerminate, .client = NumberOf(client, "client")});
        const bool is_gone = ended.ok() || ended.status().code() == StatusCode::kNotFound ||
                             admin::NobodyAnswers(ended.status());
        if (!is_gone) return ended.status();
      }
      if (clients->empty()) return Answer{.is_end = true};
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

Result<Answer> Control::ClientList(const Arguments& arguments) const {
  const Result<json> device = ServerOf(arguments[0]);
  if (!device.ok()) return device.status();
  const Result<json> clients = Clients();
  if (!clients.ok()) return clients.status();
  return Answer{.text = PidLines(*clients, NumberOf(*device, "worker_pid"))};
}

Result<Answer> Control::DeviceClientList(const Arguments& arguments) const {
  Result<json> devices = json::array();
  if (arguments.empty()) {
    devices = Devices();
  } else {
    const Result<json> device = ServerOf(arguments[0]);
    if (!device.ok()) return device.status();
    devices->push_back(*device);
  }
  if (!devices.ok()) return devices.status();
  const Result<json> clients = Clients();
  if (!clients.ok()) return clients.status();
  Answer answer;
  for (const json& device : *devices) {
    answer.text += Printable(UuidOf(device)) + "\n";
    if (NumberOf(device, "worker_pid") > 0) {
      answer.text += PidLines(*clients, NumberOf(device, "worker_pid"));
    }
  }
  return answer;
}

Result<Answer> Control::Ps(const Arguments& arguments) const {
  std::uint64_t worker = 0;
  if (!arguments.empty()) {
    if (arguments[0] != "-p" || arguments.size() != 2) {
      return Refused("ps refused: allowed is: ps [-p PID]");
    }
    const Result<json> device = ServerOf(arguments[1]);
    if (!device.ok()) return device.status();
    worker = NumberOf(*device, "worker_pid");
  }
  const Result<json> devices = Devices();
  if (!devices.ok()) return devices.status();
  Result<json> clients = Clients();
  if (!clients.ok()) return clients.status();
  json rows = json::array();
  for (json& client : *clients) {
    if (worker != 0 && NumberOf(client, "worker_pid") != worker) continue;
    client["device_uuid"] = TextOf(client, "device");
    for (const json& device : *devices) {
      if (TextOf(device, "device") == TextOf(client, "device")) {
        client["device_uuid"] = UuidOf(device);
      }
    }
    rows.push_back(std::move(client));
  }
  return Answer{.text = Table(rows, kPsColumns, {.wide = true})};
}

Result<Answer> Control::TerminateClient(const Arguments& arguments) const {
  const Result<std::uint64_t> pid = Number(arguments[1], "PID of a client", 1, kPidMax);
  if (!pid.ok()) return pid.status();
  const Result<json> device = ServerOf(arguments[0]);
  if (!device.ok()) return device.status();
  const Result<json> clients = Clients();
  if (!clients.ok()) return clients.status();
  bool any = false;
  for (const json& client : *clients) {
    const bool is_its = NumberOf(client, "pid") == *pid &&
                        NumberOf(client, "worker_pid") == NumberOf(*device, "worker_pid");
    if (!is_its) continue;
    any = true;
    const Result<json> ended =
        Ask({.verb = ipc::AdminVerb::kTerminate, .client = NumberOf(client, "client")});
    // It may leave by itself meanwhile.
    if (!ended.ok() && ended.status().code() != StatusCode::kNotFound) return ended.status();
  }
  if (any) return Answer{};
  return Status(StatusCode::kNotFound, "client " + arguments[1] + " is not at server " +
                                           arguments[0] + "; see get_client_list " + arguments[0]);
}

Result<Answer> Control::DeviceQuery(const Arguments& arguments) const {
  bool as_csv = false;
  std::uint64_t worker = 0;
  for (const std::string& argument : arguments) {
    if (argument == "--csv" && !as_csv) {
      as_csv = true;
      continue;
    }
    if (worker != 0) return Refused("device_query refused: allowed is: device_query [PID] [--csv]");
    const Result<json> device = ServerOf(argument);
    if (!device.ok()) return device.status();
    worker = NumberOf(*device, "worker_pid");
  }
  const Result<json> devices = Devices();
  if (!devices.ok()) return devices.status();
  json rows = json::array();
  for (std::size_t i = 0; i < devices->size(); ++i) {
    json device = (*devices)[i];
    if (worker != 0 && NumberOf(device, "worker_pid") != worker) continue;
    device["ordinal"] = i;
    device["shown_uuid"] = UuidOf(device);
    rows.push_back(std::move(device));
  }
  return Answer{.text = as_csv ? CommaSeparated(rows, kDeviceColumns)
                               : Table(rows, kDeviceColumns, {.wide = true})};
}

}  // namespace gpushared::server::mps
