// SPDX-License-Identifier: Apache-2.0
// What the commands of gpusharedctl share. Each group of commands declares itself in a file of its
// own; the command that was given leaves behind what is to be done.

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

// kFitsNowhere: the answer of `advise`, and no error.
enum ExitCode : int { kDone = 0, kRejected = 1, kUsage = 2, kNoServer = 3, kFitsNowhere = 4 };

using command_line::Command;
using command_line::Option;

struct CommandLine {
  const Command& app;
  // Options of every command.
  std::string socket;  // Empty: the usual places.
  bool as_json = false;
  // Set by the command that was given, while the arguments are parsed. Returns its exit code.
  std::function<int()> action;
};

// The groups.
void AddViews(CommandLine& line);             // status, ps, devices, endpoints, top, explain
void AddClientCommands(CommandLine& line);    // client terminate, client set
void AddEndpointCommands(CommandLine& line);  // endpoint lease, cdi
void AddServerCommands(CommandLine& line);    // drain, reload
void AddTraceCommands(CommandLine& line);     // trace
void AddAdviseCommands(CommandLine& line);    // profile, advise
void AddPtxCommands(CommandLine& line);       // ptx check
void AddMigCommands(CommandLine& line);       // mig list, mig plan, ...; where it is built

// A command under `parent`, which takes the shared options behind itself, too.
Command AddCommand(const Command& parent, const std::string& name, const std::string& help);

// Makes text for people of a server's answer.
using Report = std::function<std::string(const nlohmann::json& answer)>;

// The server's socket. Says on stderr when there is none.
std::optional<std::string> GetSocket(const CommandLine& line);
// Says on stderr why the server at `path` did not do it. The exit code.
int Complain(const std::string& path, const Status& why);

// Asks the server and prints its answer, as JSON or as `report` has it; says on stderr what went
// wrong. The exit code.
int AskAndPrint(const CommandLine& line, const ipc::Admin& question, const Report& report);

int Print(const std::string& text);

// The client of that ID, or of that name where only one has it. Asks the server for names alone.
Result<std::uint64_t> ClientNamed(const std::string& socket, const std::string& id_or_name);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_COMMAND_LINE_H_
