// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the commands of gpusharedctl. Each group of commands has its own file with
// a function that registers the group. The command that was given sets the action to execute.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_COMMAND_LINE_H_
#define GPUSHARED_SERVER_TOOLS_CTL_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "common/command_line/command_line.h"
#include "ipc/wire/control.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::server {

// Exit codes of all commands. kFitsNowhere is an answer of `advise`, not an error.
enum ExitCode : int { kDone = 0, kRejected = 1, kUsage = 2, kNoServer = 3, kFitsNowhere = 4 };

using command_line::Command;
using command_line::Option;

struct CommandLine {
  const Command& app;
  // Options of all commands.
  std::string socket;  // If empty, the default locations apply.
  bool as_json = false;
  // Runs the command that was given, and returns its exit code. Set during parsing.
  std::function<int()> action;
};

// The following register groups of commands.
void AddViews(CommandLine& line);             // status, ps, devices, endpoints, top, explain
void AddClientCommands(CommandLine& line);    // client terminate, client set, park, wake
void AddEndpointCommands(CommandLine& line);  // endpoint lease, cdi
void AddServerCommands(CommandLine& line);    // drain, resume, reload, upgrade
void AddTraceCommands(CommandLine& line);     // trace
void AddAdviseCommands(CommandLine& line);    // profile, advise
void AddPtxCommands(CommandLine& line);       // ptx check
void AddMigCommands(CommandLine& line);       // mig list, mig plan, ...; if MIG support is built

// Adds a command under `parent` that also accepts the shared options after its name.
Command AddCommand(const Command& parent, const std::string& name, const std::string& help);

// Formats a server's answer as human-readable text.
using Report = std::function<std::string(const nlohmann::json& answer)>;

// Returns the path of the server's socket. Reports an error on stderr if there is none.
std::optional<std::string> GetSocket(const CommandLine& line);
// Reports on stderr why the server at `path` rejected the request. Returns the exit code.
int Complain(const std::string& path, const Status& why);

// Sends the request and prints the answer, as JSON or formatted by `report`; reports errors on
// stderr. Returns the exit code.
int AskAndPrint(const CommandLine& line, const ipc::Admin& question, const Report& report);

int Print(const std::string& text);

// Returns the client with that id, or with that name if it is unique. Queries the server only for
// names.
Result<std::uint64_t> ClientNamed(const std::string& socket, const std::string& id_or_name);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_COMMAND_LINE_H_
