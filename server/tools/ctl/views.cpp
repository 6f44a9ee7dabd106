// SPDX-License-Identifier: Apache-2.0
// Read-only commands.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "ipc/socket_path.h"
#include "server/telemetry/admin/ask.h"
#include "server/tools/ctl/command_line.h"
#include "server/tools/ctl/report.h"
#include "server/tools/ctl/table.h"
#include "server/tools/ctl/top/top.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

// Filled in by the command line.
struct ViewArguments {
  View view;
  double watch_s = 0;  // 0 means once.
};

// A command that shows a table.
struct TableCommand {
  const char* name;
  const char* help;
  ipc::AdminVerb verb;
  std::string (*report)(const nlohmann::json& answer, const View& view);
  std::span<const Column> (*columns)();
};
constexpr TableCommand kTableCommands[] = {
    {"status", "overview of the server and its devices", ipc::AdminVerb::kStatus, StatusReport,
     StatusColumns},
    {"ps", "clients and their usage", ipc::AdminVerb::kClients, ClientsReport, ClientColumns},
    {"devices", "devices and their workers", ipc::AdminVerb::kDevices, DevicesReport,
     DeviceColumns},
    {"endpoints", "endpoints and their clients", ipc::AdminVerb::kEndpoints, EndpointsReport,
     EndpointColumns},
};

// Returns the width of the terminal on stdout; 0 if stdout is not a terminal.
std::size_t TerminalWidth() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

// Returns the earlier of the two answers needed to compute the clients' current share of a device,
// or no answer if no column shows that share. If the server does not answer, the second request
// reports the failure.
nlohmann::json EarlierAnswer(const CommandLine& line, const TableCommand& command,
                             const View& view) {
  constexpr std::chrono::milliseconds kApart{300};
  constexpr std::string_view kShare = "device_share_percent";
  const bool is_shown =
      command.verb == ipc::AdminVerb::kClients && !line.as_json &&
      (view.fields.empty() || std::ranges::any_of(view.fields, [&](const std::string& field) {
         const Column* const column = FindColumn(command.columns(), field);
         return column != nullptr && column->field == kShare;
       }));
  const Result<std::string> path = ipc::ClientSocketPath(line.socket);
  if (!is_shown || !path.ok()) return {};
  Result<nlohmann::json> answer = admin::Ask(*path, {.verb = command.verb});
  if (!answer.ok()) return {};
  std::this_thread::sleep_for(kApart);
  return std::move(*answer);
}

int Show(const CommandLine& line, const TableCommand& command, ViewArguments asked) {
  const bool clears = asked.watch_s > 0 && !line.as_json && ::isatty(STDOUT_FILENO) == 1;
  nlohmann::json earlier = EarlierAnswer(line, command, asked.view);
  while (true) {
    asked.view.width = asked.view.wide ? 0 : TerminalWidth();
    const int code = AskAndPrint(line, {.verb = command.verb}, [&](const nlohmann::json& answer) {
      nlohmann::json shown = answer;
      AddShares(shown, earlier);
      earlier = answer;
      return (clears ? kClearScreen : "") + command.report(shown, asked.view);
    });
    if (code != kDone || asked.watch_s == 0) return code;
    std::this_thread::sleep_for(std::chrono::duration<double>(asked.watch_s));
  }
}

void AddTable(CommandLine& line, const TableCommand& command) {
  const Command app = AddCommand(line.app, command.name, command.help);
  const auto arguments = std::make_shared<ViewArguments>();
  const Option wide = app.AddFlag("--wide", arguments->view.wide, "all columns");
  app.AddOption("--columns", arguments->view.fields,
                "columns to show, by their headings or by the names in --json, such as name,class")
      .Delimiter(',')
      .TypeName("LIST")
      .Excludes(wide);
  const Option watch = app.AddOption("--watch", arguments->watch_s,
                                     "refresh interval in seconds (default 2), until interrupted")
                           .Expected(0, 1)
                           .Within(0.1, 3600)
                           .TypeName("SECONDS");
  app.OnUse([&line, &command, arguments, watch] {
    if (watch.IsBare()) arguments->watch_s = 2;
    if (const Status fields = CheckFields(arguments->view, command.columns()); !fields.ok()) {
      command_line::Reject("--columns: " + fields.message());
    }
    line.action = [&line, &command, arguments] { return Show(line, command, *arguments); };
  });
}

void AddExplain(CommandLine& line) {
  const Command app =
      AddCommand(line.app, "explain", "analysis of the latency of a client's request");
  const auto question = std::make_shared<ipc::Admin>(ipc::Admin{.verb = ipc::AdminVerb::kExplain});
  const auto whom = std::make_shared<std::string>();
  app.AddOption("id", *whom, "id or name as shown by ps").Required().TypeName("CLIENT");
  app.AddOption("request", question->request,
                "number of the request (default: the slowest known one)")
      .TypeName("REQUEST");
  app.OnUse([&line, question, whom] {
    line.action = [&line, question, whom]() -> int {
      const std::optional<std::string> path = GetSocket(line);
      if (!path) return kNoServer;
      const Result<std::uint64_t> client = ClientNamed(*path, *whom);
      if (!client.ok()) return Complain(*path, client.status());
      question->client = *client;
      return AskAndPrint(line, *question, ExplainReport);
    };
  });
}

void AddTop(CommandLine& line) {
  const Command app =
      AddCommand(line.app, "top", "live view of devices and clients; h shows the keys");
  const auto every_s = std::make_shared<double>(1);
  app.AddOption("--every", *every_s, "refresh interval in seconds (default 1)")
      .Within(0.2, 3600)
      .TypeName("SECONDS");
  app.OnUse([&line, every_s] {
    if (line.as_json) command_line::Reject("--json: not supported by top; use status or ps");
    line.action = [&line, every_s] {
      const std::optional<std::string> path = GetSocket(line);
      return path ? top::ShowTop(*path, std::chrono::duration<double>(*every_s)) : kNoServer;
    };
  });
}

}  // namespace

void AddViews(CommandLine& line) {
  for (const TableCommand& command : kTableCommands) AddTable(line, command);
  AddTop(line);
  AddExplain(line);
}

}  // namespace gpushared::server
