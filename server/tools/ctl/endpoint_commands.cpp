// SPDX-License-Identifier: Apache-2.0
// Commands that lease endpoints and describe them to containers.
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

// Filled in by the command line; empty or zero if not given.
struct LeaseArguments {
  std::string name, scheduling_class, highest_class, max_share, client_max_share, memory,
      client_memory, budget;
  std::vector<std::string> who, devices, owner;
  std::uint32_t weight = 0, clients_max = 0;
};

// A JSON string is also a valid TOML string.
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
  add_list("owner", asked.owner);
  return terms;
}

int HoldLease(const CommandLine& line, const LeaseArguments& asked) {
  const std::optional<std::string> path = GetSocket(line);
  if (!path) return kNoServer;
  const Result<admin::Lease> lease = admin::Lease::Take(*path, Terms(asked));
  if (!lease.ok()) return Complain(*path, lease.status());
  const nlohmann::json output = {{"endpoint", lease->endpoint()}, {"socket", lease->socket()}};
  if (Print(line.as_json ? output.dump() + "\n" : lease->socket() + "\n") != kDone)
    return kRejected;
  lease->AwaitEnd();
  return Complain(*path, {StatusCode::kDisconnected, "the server ended the lease"});
}

int WriteCdi(const CommandLine& line, const std::string& file) {
  const std::optional<std::string> path = GetSocket(line);
  if (!path) return kNoServer;
  const Result<nlohmann::json> answer = admin::Ask(*path, {.verb = ipc::AdminVerb::kEndpoints});
  if (!answer.ok()) return Complain(*path, answer.status());
  const Result<std::vector<admin::ContainerEndpoint>> endpoints =
      admin::ReadContainerEndpoints(*answer);
  if (!endpoints.ok()) return Complain(*path, endpoints.status());
  const Result<nlohmann::json> cdi = admin::CdiFile(*endpoints);
  if (!cdi.ok()) return Complain(*path, cdi.status());
  const std::string text = cdi->dump(2) + "\n";
  if (file.empty()) return Print(text);
  const Status written = admin::ReplaceFile(file, text);
  return written.ok() ? kDone : Complain(file, written);
}

}  // namespace

void AddEndpointCommands(CommandLine& line) {
  const Command cdi =
      AddCommand(line.app, "cdi", "CDI devices for containers, one for each endpoint");
  const auto file = std::make_shared<std::string>();
  cdi.AddOption("--output", *file, "output file, such as /etc/cdi/gpushared.json (default: stdout)")
      .TypeName("FILE");
  cdi.OnUse([&line, file] { line.action = [&line, file] { return WriteCdi(line, *file); }; });
  const Command endpoint = AddCommand(line.app, "endpoint", "commands for endpoints");
  endpoint.RequireCommand();
  const Command lease = AddCommand(endpoint, "lease",
                                   "lease of a new endpoint, which lasts until this program exits; "
                                   "prints the path of its socket");
  const auto asked = std::make_shared<LeaseArguments>();
  lease.AddOption("--who", asked->who, "permitted users: user:NAME, uid:NUMBER, group:NAME, ...")
      .Delimiter(',')
      .Required()
      .TypeName("LIST");
  lease.AddOption("--name", asked->name, "name of the endpoint (default: lease-NUMBER)");
  lease.AddOption("--class", asked->scheduling_class,
                  "default class of its clients, and the highest (default normal)");
  lease.AddOption("--highest-class", asked->highest_class, "highest class, if different");
  lease.AddOption("--weight", asked->weight, "default weight of its clients, and the highest");
  lease.AddOption("--max-share", asked->max_share,
                  "maximum device time of all its clients together, \"25%\"");
  lease.AddOption("--client-max-share", asked->client_max_share,
                  "maximum device time of each client");
  lease.AddOption("--memory", asked->memory,
                  "device memory of all its clients together, \"4GiB\" or \"50%\"");
  lease.AddOption("--client-memory", asked->client_memory, "device memory of each client");
  lease.AddOption("--clients-max", asked->clients_max, "maximum number of clients at once");
  lease.AddOption("--budget", asked->budget,
                  "budget, whose leases share max_share, memory and clients_max");
  lease
      .AddOption(
          "--owner", asked->owner,
          "owner of its clients' work, for operators: hpc_job:7, namespace:NAME, pod:NAME, ...")
      .Delimiter(',')
      .TypeName("LIST");
  lease.AddOption("--devices", asked->devices, "usable devices (default: all)")
      .Delimiter(',')
      .TypeName("LIST");
  lease.OnUse([&line, asked] { line.action = [&line, asked] { return HoldLease(line, *asked); }; });
}

}  // namespace gpushared::server
