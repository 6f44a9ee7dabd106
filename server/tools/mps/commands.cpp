// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mps/commands.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <set>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "ipc/share.h"
#include "ipc/wire/control.h"
#include "server/telemetry/admin/ask.h"
#include "server/telemetry/admin/json_fields.h"
#include "server/tools/ctl/table.h"
#include "server/tools/mps/input.h"

#include <nlohmann/json.hpp>

namespace gpushared::server::mps {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollEvery{50};

constexpr Column kPsColumns[] = {
    {.heading = "PID", .field = "pid"},
    {.heading = "ID", .field = "client"},
    {.heading = "SERVER", .field = "worker_pid"},
    {.heading = "DEVICE", .field = "device_uuid", .is_text = true},
    {.heading = "NAMESPACE", .field = "endpoint", .is_text = true},
    {.heading = "COMMAND", .field = "name", .is_text = true},
};
constexpr Column kDeviceColumns[] = {
    {.heading = "ORDINAL", .field = "ordinal"},
    {.heading = "UUID", .field = "shown_uuid", .is_text = true},
    {.heading = "NAME", .field = "name", .is_text = true},
    {.heading = "SERVER", .field = "worker_pid"},
    {.heading = "SMS", .field = "multiprocessors"},
};
constexpr Column kPartitionColumns[] = {
    {.heading = "GPU", .field = "gpu", .is_text = true},
    {.heading = "CLASS", .field = "class", .is_text = true},
    {.heading = "ASKED", .field = "asked"},
    {.heading = "SMS", .field = "granted"},
};

// Note for commands that have no effect in a job. Prologs and epilogs written for MPS start an MPS
// daemon for each job and end that daemon, which must not end the server.
constexpr const char* kNotInJob =
    ": no effect in a Slurm job, its prolog or its epilog, because the server serves all jobs of "
    "the node; outside of jobs, an operator can use it";

constexpr const char* kForNewClients =
    ": applies to clients that connect from now on without values of their own, until the server "
    "ends; gpushared.toml has the permanent values";

// Facts that a command reads from the server.
enum Reads : unsigned { kNothing = 0, kDevices = 1, kClients = 2, kNewClients = 4 };

// A command with its checked arguments, and the facts read from the server.
struct Call {
  std::string socket, command;
  std::vector<std::string> arguments;
  bool has_flag = false;     // Whether -f or --csv was given.
  std::uint64_t number = 0;  // The numeric argument, if any; for a limit, in bytes.
  json server, device;       // Objects named by the arguments PID and DEVICE; null without them.
  json devices, clients;     // Lists of objects.
  json new_clients;          // Limits set for new clients.

  Result<json> Ask(const ipc::Admin& question) const { return admin::Ask(socket, question); }
  Status Read(unsigned reads);
  Status Reject(const std::string& why) const {
    return {StatusCode::kInvalidArgument, command + " rejected: " + why};
  }
};

std::uint64_t GetNumber(const json& row, const char* field) {
  const json& value = admin::Member(row, field);
  return value.is_number_integer() && value >= 0 ? value.get<std::uint64_t>() : 0;
}

// A cpu device has no UUID; it is identified by its name.
std::string GetUuid(const json& device) {
  const std::string uuid = admin::Text(device, "uuid");
  return uuid.empty() ? admin::Text(device, "device") : uuid;
}

bool AreAtOneWorker(const json& one, const json& other) {
  const std::uint64_t worker = GetNumber(one, "worker_pid");
  return worker != 0 && worker == GetNumber(other, "worker_pid");
}

// Returns the clients of the given server.
json ClientsAt(const Call& call, const json& server) {
  json here = json::array();
  for (const json& client : call.clients) {
    if (AreAtOneWorker(client, server)) here.push_back(client);
  }
  return here;
}

// Lists each process once, in the order of the clients.
std::string PidLines(const json& clients) {
  std::string text;
  std::set<std::uint64_t> listed;
  for (const json& client : clients) {
    const std::uint64_t pid = GetNumber(client, "pid");
    if (listed.insert(pid).second) text += std::to_string(pid) + "\n";
  }
  return text;
}

// Formats one line per row, for scripts. Commas in names are replaced, because they would start
// another column.
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

std::string PercentText(double percent) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f\n", percent);
  return text.data();
}

// Formats a limit as MPS does: "2G", "512M". MPS has no smaller unit.
std::string LimitText(std::uint64_t bytes) {
  constexpr std::uint64_t kMebi = std::uint64_t{1} << 20, kGibi = std::uint64_t{1} << 30;
  return bytes % kGibi == 0 ? std::to_string(bytes / kGibi) + "G\n"
                            : std::to_string(bytes / kMebi) + "M\n";
}

// ---- servers

Result<Answer> ListServers(const Call& call) {
  Answer answer;
  for (const json& device : call.devices) {
    const std::uint64_t pid = GetNumber(device, "worker_pid");
    if (pid > 0) answer.text += std::to_string(pid) + "\n";
  }
  return answer;
}

Result<Answer> ReportStatus(const Call& call) {
  const std::string state = admin::Text(call.server, "state");
  return Answer{.text = state == "ready"      ? "ACTIVE\n"
                        : state == "starting" ? "INITIALIZING\n"
                                              : "FAULT\n"};
}

Result<Answer> StartServer(const Call&) {
  return Answer{.note =
                    "start_server: nothing to do: each device has its server already, and it "
                    "serves all users"};
}

// Ends a client; also succeeds if the client has exited in the meantime.
Status Terminate(const Call& call, const json& client) {
  const Result<json> ended =
      call.Ask({.verb = ipc::AdminVerb::kTerminate, .client = GetNumber(client, "client")});
  const bool is_gone = ended.ok() || ended.status().code() == StatusCode::kNotFound;
  return is_gone ? Status::Ok() : ended.status();
}

// Waits for the clients to disconnect, and ends those that remain after `seconds`. Returns when the
// server has no clients or has exited.
Result<Answer> EndClients(Call call, std::uint64_t seconds) {
  const steady_clock::time_point deadline = steady_clock::now() + std::chrono::seconds(seconds);
  Status status = call.Read(kClients);
  for (; status.ok(); status = call.Read(kClients)) {
    if (steady_clock::now() >= deadline) {
      if (call.clients.empty()) return Answer{.is_end = true};
      for (const json& client : call.clients) {
        if (status.ok()) status = Terminate(call, client);
      }
      if (!status.ok()) break;
    }
    std::this_thread::sleep_for(kPollEvery);
  }
  // The server no longer answers, so it has exited.
  if (admin::IsUnreachable(status)) return Answer{.is_end = true};
  return status;
}

Result<Answer> Drain(const Call& call) {
  const Result<json> drained = call.Ask({.verb = ipc::AdminVerb::kDrain});
  if (!drained.ok()) return drained.status();
  return Answer{.note = "quit: no new clients; the server ends with the last of " +
                        std::to_string(GetNumber(*drained, "sessions")) + " sessions",
                .is_end = true};
}

Result<Answer> Quit(const Call& call) {
  const Result<Answer> drained = Drain(call);
  return call.arguments.empty() || !drained.ok() ? drained : EndClients(call, call.number);
}

Result<Answer> ShutDownServer(const Call& call) {
  if (!call.server.is_null() && call.devices.size() > 1) {
    return call.Reject("server " + std::to_string(GetNumber(call.server, "worker_pid")) +
                       " is one of " + std::to_string(call.devices.size()) +
                       " that start and end together; shutdown_server without PID ends all");
  }
  const Result<Answer> drained = Drain(call);
  return !call.has_flag || !drained.ok() ? drained : EndClients(call, 0);
}

// ---- clients and devices

Result<Answer> ListClients(const Call& call) {
  return Answer{.text = PidLines(ClientsAt(call, call.server))};
}

Result<Answer> ListClientsByDevice(const Call& call) {
  Answer answer;
  for (const json& device : call.devices) {
    if (!call.server.is_null() && device != call.server) continue;
    answer.text += Printable(GetUuid(device)) + "\n" + PidLines(ClientsAt(call, device));
  }
  return answer;
}

Result<Answer> ShowClients(const Call& call) {
  json rows = call.server.is_null() ? call.clients : ClientsAt(call, call.server);
  for (json& client : rows) {
    client["device_uuid"] = admin::Text(client, "device");
    for (const json& device : call.devices) {
      if (admin::Text(device, "device") == admin::Text(client, "device")) {
        client["device_uuid"] = GetUuid(device);
      }
    }
  }
  return Answer{.text = Table(rows, kPsColumns, {.wide = true})};
}

Result<Answer> TerminateClient(const Call& call) {
  bool any = false;
  for (const json& client : ClientsAt(call, call.server)) {
    if (GetNumber(client, "pid") != call.number) continue;
    any = true;
    if (Status status = Terminate(call, client); !status.ok()) return status;
  }
  if (any) return Answer{};
  const std::string& server = call.arguments[0];
  return Status(StatusCode::kNotFound, "client " + call.arguments[1] + " is not at server " +
                                           server + "; see get_client_list " + server);
}

Result<Answer> QueryDevices(const Call& call) {
  json rows = json::array();
  for (std::size_t i = 0; i < call.devices.size(); ++i) {
    json device = call.devices[i];
    if (!call.server.is_null() && device != call.server) continue;
    device["ordinal"] = i;
    device["shown_uuid"] = GetUuid(device);
    rows.push_back(std::move(device));
  }
  return Answer{.text = call.has_flag ? CommaSeparated(rows, kDeviceColumns)
                                      : Table(rows, kDeviceColumns, {.wide = true})};
}

Result<Answer> ListPartitions(const Call& call) {
  json rows = json::array();
  for (const json& device : call.devices) {
    for (json limit : device.value("sm_limits", json::array())) {
      if (!limit.is_object()) continue;
      limit["gpu"] = GetUuid(device);
      rows.push_back(std::move(limit));
    }
  }
  return Answer{.text = Table(rows, kPartitionColumns, {.wide = true})};
}

Result<Answer> Partition(const Call& call) {
  return Status(StatusCode::kUnsupported,
                "sm_partition " + call.arguments[0] +
                    " rejected: multiprocessors are assigned to classes, by --sm-limit when the "
                    "server starts; see lspart");
}

// ---- limits

Result<Answer> SetNewClients(const Call& call, const std::string& command,
                             const std::string& terms) {
  const Result<json> set = call.Ask({.verb = ipc::AdminVerb::kSet, .terms = terms});
  if (!set.ok()) return set.status();
  return Answer{.note = command + kForNewClients};
}

Result<Answer> SetDefaultShare(const Call& call) {
  return SetNewClients(call, call.command, "client_max_share = \"" + call.arguments[0] + "%\"");
}

Result<Answer> GetDefaultShare(const Call& call) {
  return Answer{
      .text = PercentText(admin::Number(call.new_clients, "max_share_percent").value_or(100))};
}

// MPS sets a percentage per server for new clients. Here, the percentage applies to the current
// clients of the server.
Result<Answer> SetShare(const Call& call) {
  const Result<std::uint32_t> share = ipc::ParseShare(call.arguments[1] + "%");
  if (!share.ok()) return share.status();
  std::size_t changed = 0;
  for (const json& client : ClientsAt(call, call.server)) {
    const Result<json> set = call.Ask(
        {.verb = ipc::AdminVerb::kSet, .client = GetNumber(client, "client"), .max_share = *share});
    // kNotFound is no error, because the client may have exited in the meantime.
    if (!set.ok() && set.status().code() != StatusCode::kNotFound) return set.status();
    changed += set.ok() ? 1 : 0;
  }
  return Answer{.note = call.command + ": applied to the " + std::to_string(changed) +
                        " current clients of server " + call.arguments[0] +
                        "; for new ones, use set_default_active_thread_percentage"};
}

Result<Answer> GetShare(const Call& call) {
  const json clients = ClientsAt(call, call.server);
  if (clients.empty()) return GetDefaultShare(call);
  double least = 100;
  for (const json& client : clients) {
    least = std::min(least, admin::Number(client, "max_share_percent").value_or(100));
  }
  return Answer{.text = PercentText(least)};
}

// The limit applies to new clients, even if the command names a server, because a limit never
// reclaims memory from a client.
Result<Answer> SetMemory(const Call& call) {
  return SetNewClients(call, "set_default_device_pinned_mem_limit",
                       "client_memory = \"" + std::to_string(call.number >> 20U) +
                           "MiB\"\ndevices = [" + call.device.value("device", json("")).dump() +
                           "]");
}

// Without a limit, a client may use all of the device's memory.
Result<Answer> GetMemory(const Call& call) {
  const json limits = call.new_clients.value("memory_bytes", json::object());
  const double most = admin::Number(call.device, "memory_bytes").value_or(0);
  return Answer{.text = LimitText(static_cast<std::uint64_t>(
                    admin::Number(limits, admin::Text(call.device, "device")).value_or(most)))};
}

Result<Answer> SetPriority(const Call& call) {
  return SetNewClients(call, call.command,
                       call.number == 0 ? "class = \"normal\"" : "class = \"low\"");
}

Result<Answer> GetPriority(const Call& call) {
  return Answer{.text = admin::Text(call.new_clients, "class") == "low" ? "1\n" : "0\n"};
}

Result<Answer> ShowHelp(const Call&) { return Answer{.text = Help()}; }

// ---- the table

struct Command {
  std::string_view name;
  // Expected arguments; if `are_optional`, either all or none. A word that begins with a dash is a
  // literal; any other word names a kind of argument for Check and Find.
  std::string_view words;
  Result<Answer> (*carry_out)(const Call& call);
  unsigned reads = kNothing;
  bool are_optional = false;
  std::string_view flag = "";  // A flag that may occur once, anywhere.
  // Alternatives that MPS accepts in addition to `words`, shown in rejections.
  std::string_view allowed = "";
};

constexpr bool kOptional = true;
constexpr Command kCommands[] = {
    {"get_server_list", "", ListServers, kDevices},
    {"get_server_status", "PID", ReportStatus},
    {"start_server", "-uid UID", StartServer, kDevices, false, "",
     "-uid UID alone; devices are not divided"},
    {"shutdown_server", "PID", ShutDownServer, kNothing, kOptional, "-f"},
    {"quit", "-t SECONDS", Quit, kNothing, kOptional},
    {"get_client_list", "PID", ListClients, kClients},
    {"get_device_client_list", "PID", ListClientsByDevice, kDevices | kClients, kOptional},
    {"ps", "-p PID", ShowClients, kDevices | kClients, kOptional},
    {"terminate_client", "SERVER_PID CLIENT_PID", TerminateClient, kClients},
    {"set_default_active_thread_percentage", "PERCENT", SetDefaultShare},
    {"get_default_active_thread_percentage", "", GetDefaultShare, kNewClients},
    {"set_active_thread_percentage", "PID PERCENT", SetShare, kClients},
    {"get_active_thread_percentage", "PID", GetShare, kClients | kNewClients},
    {"set_default_device_pinned_mem_limit", "DEVICE LIMIT", SetMemory},
    {"get_default_device_pinned_mem_limit", "DEVICE", GetMemory, kNewClients},
    {"set_device_pinned_mem_limit", "PID DEVICE LIMIT", SetMemory},
    {"get_device_pinned_mem_limit", "PID DEVICE", GetMemory, kNewClients},
    {"set_default_client_priority", "0|1", SetPriority},
    {"get_default_client_priority", "", GetPriority, kNewClients},
    {"device_query", "PID", QueryDevices, kDevices, kOptional, "--csv"},
    {"sm_partition", "add|rm DEVICE CHUNKS|PARTITION", Partition},
    {"lspart", "", ListPartitions, kDevices},
    {"help", "", ShowHelp},
};

std::string GetUsage(const Command& command) {
  std::string usage(command.name);
  if (!command.words.empty()) {
    const std::string words(command.words);
    usage += command.are_optional ? " [" + words + "]" : " " + words;
  }
  return command.flag.empty() ? usage : usage + " [" + std::string(command.flag) + "]";
}

// Returns whether the command affects clients of other jobs.
bool IsForAll(std::string_view command) {
  return command == "quit" || command == "shutdown_server" || command.starts_with("set_");
}

// Arguments by kind.
using Named = std::vector<std::pair<std::string, std::string>>;

Result<Named> Match(const Command& command, Call& call) {
  const std::vector<std::string> words = *Words(command.words);
  std::vector<std::string> given = call.arguments;
  const std::size_t most =
      words.size() + (command.flag.empty() ? 0 : 1) + (command.allowed.empty() ? 0 : 1);
  if (given.size() > most || (given.size() < words.size() && !command.are_optional)) {
    return call.Reject("it has " + std::to_string(given.size()) +
                       " arguments, allowed: " + GetUsage(command));
  }
  const auto flag = std::ranges::find(given, command.flag);
  if (flag != given.end()) {
    call.has_flag = true;
    given.erase(flag);
  }
  Named named;
  if (given.empty() && command.are_optional) return named;
  bool fits = given.size() == words.size();
  for (std::size_t i = 0; fits && i < words.size(); ++i) {
    if (words[i].starts_with('-')) {
      fits = given[i] == words[i];
    } else {
      named.emplace_back(words[i], given[i]);
    }
  }
  if (fits) return named;
  return call.Reject(command.allowed.empty() ? "allowed: " + GetUsage(command)
                                             : "allowed: " + std::string(command.allowed));
}

Result<std::uint64_t> Check(const std::string& name, const std::string& word, bool is_removal) {
  if (name == "PID" || name == "SERVER_PID") return Number(word, "PID of a server", 1, kPidMax);
  if (name == "CLIENT_PID") return Number(word, "PID of a client", 1, kPidMax);
  if (name == "UID") return Number(word, "uid", 0, kUidMax);
  if (name == "SECONDS") return Number(word, "timeout", 0, kSecondsMax, " seconds");
  if (name == "0|1") return Number(word, "client priority", 0, 1);
  if (name == "LIMIT") return MemoryLimit(word);
  if (name == "CHUNKS|PARTITION" && !is_removal) return Number(word, "chunks", 1, kChunksMax);
  if (name == "PERCENT") {
    const Result<double> percentage = Percentage(word);
    if (!percentage.ok()) return percentage.status();
  }
  if (name == "add|rm" && word != "add" && word != "rm") {
    return Status(StatusCode::kInvalidArgument,
                  "sm_partition rejected: asked for '" + word + "', allowed: add and rm");
  }
  return 0;
}

// Resolves arguments that refer to devices: a server by the pid of its worker, a device by ordinal,
// UUID or name.
Status Find(const Named& named, Call& call) {
  for (const auto& [name, word] : named) {
    const bool is_server = name == "PID" || name == "SERVER_PID";
    if (!is_server && name != "DEVICE") continue;
    const bool is_ordinal = std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
    json& found = is_server ? call.server : call.device;
    for (std::size_t i = 0; i < call.devices.size(); ++i) {
      const json& device = call.devices[i];
      const bool is_it = is_server ? GetNumber(device, "worker_pid") == std::stoull(word)
                         : is_ordinal
                             ? word == std::to_string(i)
                             : word == GetUuid(device) || word == admin::Text(device, "device");
      if (is_it && found.is_null()) found = device;
    }
    if (!found.is_null()) continue;
    return {StatusCode::kNotFound, is_server
                                       ? "server " + word + " does not exist; see get_server_list"
                                       : "device '" + word + "' does not exist; see device_query"};
  }
  return Status::Ok();
}

}  // namespace

Status Call::Read(unsigned reads) {
  const auto list = [&](ipc::AdminVerb verb, const char* name, json& rows) -> Status {
    const Result<json> answer = Ask({.verb = verb});
    if (!answer.ok()) return answer.status();
    rows = answer->value(name, json());
    const auto is_object = [](const json& row) { return row.is_object(); };
    if (rows.is_array() && std::ranges::all_of(rows, is_object)) return Status::Ok();
    return {StatusCode::kProtocolViolation,
            std::string("the server's answer has no list of ") + name};
  };
  Status status;
  if ((reads & kDevices) != 0) status = list(ipc::AdminVerb::kDevices, "devices", devices);
  if (status.ok() && (reads & kClients) != 0) {
    status = list(ipc::AdminVerb::kClients, "clients", clients);
  }
  if (!status.ok() || (reads & kNewClients) == 0) return status;
  const Result<json> answer = Ask({.verb = ipc::AdminVerb::kStatus});
  if (!answer.ok()) return answer.status();
  const json listed = answer->value("server", json());
  new_clients = listed.is_object() ? listed.value("new_clients", json::object()) : json::object();
  return Status::Ok();
}

Result<Answer> Do(const std::string& socket, const std::vector<std::string>& words,
                  bool is_in_job) {
  Call call{.socket = socket, .command = words.front()};
  call.arguments.assign(words.begin() + 1, words.end());
  const auto command = std::ranges::find(kCommands, call.command, &Command::name);
  if (command == std::end(kCommands)) {
    return Status(StatusCode::kInvalidArgument,
                  "command '" + call.command + "' rejected: there is no such command; see help");
  }
  const Result<Named> named = Match(*command, call);
  if (!named.ok()) return named.status();
  unsigned reads = command->reads;
  for (const auto& [name, word] : *named) {
    const Result<std::uint64_t> number = Check(name, word, call.arguments.front() == "rm");
    if (!number.ok()) return number.status();
    call.number = *number;
    if (name.ends_with("PID") || name == "DEVICE") reads |= kDevices;
  }
  if (is_in_job && IsForAll(call.command)) return Answer{.note = call.command + kNotInJob};
  Status ready = call.Read(reads);
  if (ready.ok()) ready = Find(*named, call);
  return ready.ok() ? command->carry_out(call) : ready;
}

std::string Help() {
  std::string text;
  for (const Command& command : kCommands) text += "  " + GetUsage(command) + "\n";
  return text;
}

}  // namespace gpushared::server::mps
