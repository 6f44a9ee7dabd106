// SPDX-License-Identifier: Apache-2.0
// Commands for one client.
#include <functional>
#include <memory>
#include <optional>

#include "ipc/share.h"
#include "server/tools/ctl/command_line.h"
#include "server/tools/ctl/report.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

// Filled in by the command line.
struct ClientArguments {
  std::string id;  // Id or name of the client.
  std::string scheduling_class;
  std::uint32_t weight = 0;
  std::string max_share;
  std::string device;
  bool is_held = false;
};

std::optional<SchedulingClass> ClassFrom(const std::string& text) {
  if (text == "high") return SchedulingClass::kHigh;
  if (text == "normal") return SchedulingClass::kNormal;
  if (text == "low") return SchedulingClass::kLow;
  return std::nullopt;
}

std::string IsShare(const std::string& text) {
  const Result<std::uint32_t> share = ipc::ParseShare(text);
  return share.ok() ? "" : std::string(share.status().message());
}

// Calls `report` with the id of the client that `whom` names.
void Ask(CommandLine& line, const std::string& whom, ipc::Admin question,
         const std::function<Report(std::uint64_t)>& report) {
  line.action = [&line, whom, question, report]() mutable -> int {
    const std::optional<std::string> path = GetSocket(line);
    if (!path) return kNoServer;
    const Result<std::uint64_t> client = ClientNamed(*path, whom);
    if (!client.ok()) return Complain(*path, client.status());
    question.client = *client;
    return AskAndPrint(line, question, report(*client));
  };
}

void Do(CommandLine& line, const std::string& whom, const ipc::Admin& question,
        const std::string& what) {
  Ask(line, whom, question, [what](std::uint64_t client) {
    return [=](const auto&) { return "client " + std::to_string(client) + " is " + what + "\n"; };
  });
}

void AddParking(CommandLine& line, const std::shared_ptr<ClientArguments>& arguments) {
  const Command park = AddCommand(
      line.app, "park", "move of a client's device memory to host memory until its next command");
  park.AddOption("id", arguments->id, "id or name as shown by ps").Required().TypeName("CLIENT");
  park.AddFlag("--hold", arguments->is_held,
               "also if the client is busy; its commands wait until `wake`");
  park.OnUse([&line, arguments] {
    Ask(line, arguments->id,
        {.verb = ipc::AdminVerb::kPark, .request = arguments->is_held ? std::uint64_t{1} : 0},
        [](std::uint64_t) { return ParkedReport; });
  });
  const Command wake = AddCommand(line.app, "wake", "return of a parked client to the device");
  wake.AddOption("id", arguments->id, "id or name as shown by ps").Required().TypeName("CLIENT");
  wake.OnUse([&line, arguments] {
    Ask(line, arguments->id, {.verb = ipc::AdminVerb::kWake},
        [](std::uint64_t) { return ParkedReport; });
  });
}

void AddMove(CommandLine& line, const std::shared_ptr<ClientArguments>& arguments) {
  const Command move = AddCommand(line.app, "move", "move of a running client to another device");
  move.AddOption("id", arguments->id, "id or name as shown by ps").Required().TypeName("CLIENT");
  move.AddOption("--to", arguments->device, "device of the same kind, as shown by devices")
      .Required()
      .TypeName("DEVICE");
  move.OnUse([&line, arguments] {
    Ask(line, arguments->id, {.verb = ipc::AdminVerb::kMove, .terms = arguments->device},
        [](std::uint64_t) { return MovedReport; });
  });
}

}  // namespace

void AddClientCommands(CommandLine& line) {
  const auto arguments = std::make_shared<ClientArguments>();
  AddParking(line, arguments);
  AddMove(line, arguments);
  const Command client = AddCommand(line.app, "client", "commands for one client");
  client.RequireCommand();

  const Command terminate = AddCommand(client, "terminate", "termination of a client's session");
  terminate.AddOption("id", arguments->id, "id or name as shown by ps").Required();
  terminate.OnUse([&line, arguments] {
    Do(line, arguments->id, {.verb = ipc::AdminVerb::kTerminate}, "terminated");
  });

  const Command set = AddCommand(client, "set", "class, weight or share of a live client");
  set.AddOption("id", arguments->id, "id or name as shown by ps").Required();
  set.AddOption("--class", arguments->scheduling_class, "class: high, normal or low")
      .OneOf({"high", "normal", "low"});
  set.AddOption("--weight", arguments->weight, "weight within the class").Range(1U, kWeightMax);
  set.AddOption("--max-share", arguments->max_share,
                "maximum device time, \"25%\"; \"100%\", or its rule's max_share, removes the cap")
      .Check(IsShare);
  set.OnUse([&line, arguments] {
    ipc::Admin change = {.verb = ipc::AdminVerb::kSet};
    change.client_class = ClassFrom(arguments->scheduling_class);
    if (arguments->weight > 0) change.weight = arguments->weight;
    if (!arguments->max_share.empty()) change.max_share = *ipc::ParseShare(arguments->max_share);
    if (!change.client_class && !change.weight && !change.max_share) {
      command_line::Reject("client set: --class, --weight or --max-share is required");
    }
    Do(line, arguments->id, change, "changed");
  });
}

}  // namespace gpushared::server
