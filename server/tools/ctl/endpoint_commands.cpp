// SPDX-License-Identifier: Apache-2.0
// Ways in that an operator leases.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "server/telemetry/admin/ask.h"
#include "server/telemetry/admin/containers.h"
#include "server/tools/ctl/command_line.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

// The command line fills them in; empty or zero: not said.
struct LeaseArguments {
  std::string name, scheduling_class, highest_class, max_share, client_max_share, memory,
      client_memory, budget;
  std::vector<std::string> who, devices;
  std::uint32_t weight = 0, clients_max = 0;
};

// A JSON string is a TOML string, too.
std::string Quoted(const std::string& text) { return nlohmann::json(text).dump(); }

std::string Terms(const LeaseArguments& asked) {
  std::string terms;
  const auto add_text = [&](const char* key, const std::string& value) {
    if (!value.empty()) terms += key + (" = " + Quoted(value)) + "\n";
  };
  const auto add_number = [&](const char* key, std::uint32_t value) {
    if (value > 0) terms += key + (" = " + std::to_string(value)) + "\n";
  };
  const auto add_list = [&](const char* key, const std::vector<std::string>& values) {
    if (!values.empty()) terms += key + (" = " + nlohmann::json(values).dump()) + "\n";
  };
  add_text("name", asked.name);
  add_text("class", asked.scheduling_class);
  add_text("highest_class", asked.highest_class);
  add_number("weight", asked.weight);
  add_text("max_share", asked.max_share);
  add_text("client_max_share", asked.client_max_share);
  add_text("memory", asked.memory);
  add_text("client_memory", asked.client_memory);
  add_number("clients_max", asked.clients_max);
  add_text("budget", asked.budget);
  add_list("who", asked.who);
  add_list("devices", asked.devices);
  return terms;
}

int HoldLease(const CommandLine& line, const LeaseArguments& asked) {
  const std::optional<std::string> path = GetSocket(line);
  if (!path) return kNoServer;
  const Result<admin::Lease> lease = admin::Lease::Take(*path, Terms(asked));
  if (!lease.ok()) return Complain(*path, lease.status());
  const nlohmann::json told = {{"endpoint", lease->endpoint()}, {"socket", lease->socket()}};
  if (Print(line.as_json ? told.dump() + "\n" : lease->socket() + "\n") != kDone) return kRejected;
  lease->AwaitEnd();
  return Complain(*path, {StatusCode::kDisconnected, "the server ended the lease"});
}

int WriteCdi(const CommandLine& line, const std::string& file) {
  const std::optional<std::string> path = GetSocket(line);
  if (!path) return kNoServer;
  const Result<nlohmann::json> answer = admin::Ask(*path, {.verb = ipc::AdminVerb::kEndpoints});
  if (!answer.ok()) return Complain(*path, answer.status());
  const Result<std::vector<admin::ContainerWay>> ways = admin::ContainerWays(*answer);
  if (!ways.ok()) return Complain(*path, ways.status());
  const Result<nlohmann::json> cdi = admin::CdiFile(*ways);
  if (!cdi.ok()) return Complain(*path, cdi.status());
  const std::string text = cdi->dump(2) + "\n";
  if (file.empty()) return Print(text);
  const Status written = admin::ReplaceFile(file, text);
  return written.ok() ? kDone : Complain(file, written);
}

}  // namespace

void AddEndpointCommands(CommandLine& line) {
  const Command cdi = AddCommand(line.app, "cdi", "endpoints as devices for containers");
  const auto file = std::make_shared<std::string>();
  cdi.AddOption("--output", *file, "where to write it, such as /etc/cdi/gpushared.json")
      .TypeName("FILE");
  cdi.OnUse([&line, file] { line.action = [&line, file] { return WriteCdi(line, *file); }; });
  const Command endpoint = AddCommand(line.app, "endpoint", "one way in");
  endpoint.RequireCommand();
  const Command lease = AddCommand(endpoint, "lease",
                                   "make a socket with a rule, print its path, and hold it until "
                                   "this program ends");
  const auto asked = std::make_shared<LeaseArguments>();
  lease.AddOption("--who", asked->who, "who may come: user:NAME, uid:NUMBER, group:NAME, ...")
      .Delimiter(',')
      .Required()
      .TypeName("LIST");
  lease.AddOption("--name", asked->name, "its name (default: lease-NUMBER)");
  lease.AddOption("--class", asked->scheduling_class,
                  "class of those who say none, and the highest (default normal)");
  lease.AddOption("--highest-class", asked->highest_class, "the highest, if it is another one");
  lease.AddOption("--weight", asked->weight, "weight of those who say none, and the highest");
  lease.AddOption("--max-share", asked->max_share, "device time of all who come at most, \"25%\"");
  lease.AddOption("--client-max-share", asked->client_max_share,
                  "device time of each of them at most");
  lease.AddOption("--memory", asked->memory, "device memory of all who come, \"4GiB\" or \"50%\"");
  lease.AddOption("--client-memory", asked->client_memory, "device memory of each of them");
  lease.AddOption("--clients-max", asked->clients_max, "how many may be there at one time");
  lease.AddOption("--budget", asked->budget,
                  "leases of one budget have share, memory and clients together");
  lease.AddOption("--devices", asked->devices, "these devices alone")
      .Delimiter(',')
      .TypeName("LIST");
  lease.OnUse([&line, asked] { line.action = [&line, asked] { return HoldLease(line, *asked); }; });
}

}  // namespace gpushared::server
