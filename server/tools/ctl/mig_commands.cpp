// SPDX-License-Identifier: Apache-2.0
// MIG commands: show how GPUs are partitioned, and repartition them. They query the driver, and
// have a running server release the devices that will be removed.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ipc/socket_path.h"
#include "server/tools/ctl/command_line.h"
#include "server/tools/ctl/mig/server_tenant.h"
#include "server/tools/mig/boards.h"
#include "server/tools/mig/gpu_plan.h"
#include "server/tools/mig/mig_parted_file.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using nlohmann::json;

// Filled in by the command line; empty if not given.
struct MigArguments {
  std::string gpu, instances, file, config, board, have, output;
  std::string name = "current", state = mig::StateFile::kUsualPath;
  bool is_disabled = false, is_at_boot = false;
  std::uint32_t drain_s = 30;
};

int Reject(const Status& why) {
  std::fprintf(stderr, "gpusharedctl: %s\n", why.message().c_str());
  return kRejected;
}

void PrintError(const std::string& message) { std::fprintf(stderr, "%s\n", message.c_str()); }

// Resources of a command, for its duration.
struct Session {
  std::unique_ptr<const device::nvml::Nvml> nvml;
  std::unique_ptr<ServerTenant> tenant;

  mig::GpuControl control() const { return mig::GpuControl(*nvml); }
  mig::GetUser user_of() const {
    return [this](const std::string& uuid, const std::vector<std::uint32_t>& processes) {
      return tenant->GetUser(uuid, processes);
    };
  }
};

// Queries the server if `needs_server`. It is not an error if no server runs in the default
// locations.
Result<Session> Begin(const CommandLine& line, const MigArguments& asked, bool needs_server) {
  auto nvml = device::nvml::Nvml::Load();
  if (!nvml.ok()) return nvml.status();
  const Result<std::string> socket = ipc::ClientSocketPath(line.socket);
  if (!socket.ok() && !line.socket.empty()) return socket.status();
  Session session{.nvml = std::move(*nvml),
                  .tenant = std::make_unique<ServerTenant>(socket.ok() ? *socket : "",
                                                           std::chrono::seconds(asked.drain_s))};
  if (needs_server) {
    if (Status checked = session.tenant->ReadUsers(); !checked.ok()) return checked;
  }
  return session;
}

// A GPU and its requested partitioning.
struct GpuRequest {
  mig::MigGpu gpu;
  mig::Request request;
};

Result<mig::ConfigFile> ReadConfigFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Status(StatusCode::kNotFound, "cannot read " + path);
  // Reads one byte more than the limit, so that an overlong file is detected.
  std::string text(mig::kConfigBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return mig::ParseConfigFile(text, path);
}

Result<std::vector<GpuRequest>> RequestsOfFile(const std::vector<mig::MigGpu>& gpus,
                                               const MigArguments& asked) {
  const Result<mig::ConfigFile> file = ReadConfigFile(asked.file);
  if (!file.ok()) return file.status();
  const mig::NamedConfig* const config = mig::FindConfig(*file, asked.config);
  if (config == nullptr) {
    return Status(StatusCode::kNotFound,
                  asked.file + " has no configuration '" + asked.config + "'");
  }
  std::vector<GpuRequest> requests;
  for (const mig::MigGpu& gpu : gpus) {
    const mig::ConfigEntry* chosen = nullptr;
    for (const mig::ConfigEntry& entry : config->entries) {
      if (!entry.IsAbout(gpu.index, gpu.model)) continue;
      if (chosen != nullptr) {
        return Status(StatusCode::kInvalidArgument,
                      asked.file + ":" + std::to_string(entry.line) + ": " + gpu.Named() +
                          " has an entry already, in line " + std::to_string(chosen->line));
      }
      chosen = &entry;
    }
    if (chosen == nullptr) continue;
    mig::Request request{.is_enabled = chosen->is_enabled};
    if (chosen->is_enabled && gpu.trouble.empty()) {
      Result<std::vector<mig::Wanted>> wanted = mig::InstancesFor(gpu.board, chosen->devices);
      if (!wanted.ok()) {
        return Status(wanted.status().code(), asked.file + ":" + std::to_string(chosen->line) +
                                                  ": " + wanted.status().message());
      }
      request.wanted = std::move(*wanted);
    }
    requests.push_back({.gpu = gpu, .request = std::move(request)});
  }
  if (!requests.empty()) return requests;
  return Status(StatusCode::kNotFound, "configuration '" + asked.config + "' of " + asked.file +
                                           " applies to no GPU of this machine");
}

// A list with placements in nvidia-smi's format ("19:0,14:2") is a layout; without placements the
// planner chooses them.
Result<mig::Request> RequestFor(const mig::Board& board, const std::string& instances) {
  mig::Request request;
  if (instances == "none") return request;
  if (instances.find(':') != std::string::npos) {
    Result<mig::Layout> places = mig::ParseLayout(board, instances);
    if (!places.ok()) return places.status();
    request.places = std::move(*places);
    return request;
  }
  Result<std::vector<mig::Wanted>> wanted = mig::ParseInstances(board, instances);
  if (!wanted.ok()) return wanted.status();
  request.wanted = std::move(*wanted);
  return request;
}

Result<std::vector<GpuRequest>> GetRequests(const std::vector<mig::MigGpu>& gpus,
                                            const MigArguments& asked) {
  if (!asked.file.empty()) return RequestsOfFile(gpus, asked);
  std::vector<const mig::MigGpu*> meant;
  for (const mig::MigGpu& gpu : gpus) {
    const bool is_meant = asked.gpu.empty() || std::to_string(gpu.index) == asked.gpu ||
                          (asked.gpu.starts_with("GPU-") && gpu.uuid.starts_with(asked.gpu));
    if (is_meant) meant.push_back(&gpu);
  }
  if (meant.size() != 1) {
    return Status(meant.empty() ? StatusCode::kNotFound : StatusCode::kInvalidArgument,
                  "GPU '" + asked.gpu + "' is " + (meant.empty() ? "none" : "more than one") +
                      " of the " + std::to_string(gpus.size()) +
                      " GPUs here: --gpu takes a number or a UUID");
  }
  if (!meant[0]->trouble.empty()) {
    return Status(StatusCode::kUnavailable,
                  meant[0]->Named() + " does not answer: " + meant[0]->trouble);
  }
  Result<mig::Request> request = asked.is_disabled ? mig::Request{.is_enabled = false}
                                                   : RequestFor(meant[0]->board, asked.instances);
  if (!request.ok()) return request.status();
  return std::vector<GpuRequest>{{.gpu = *meant[0], .request = std::move(*request)}};
}

// Plans all GPUs before any of them is changed.
Result<std::vector<mig::GpuPlan>> Plans(const Session& session, const MigArguments& asked) {
  const Result<std::vector<mig::MigGpu>> gpus = session.control().Read();
  if (!gpus.ok()) return gpus.status();
  const Result<std::vector<GpuRequest>> requests = GetRequests(*gpus, asked);
  if (!requests.ok()) return requests.status();
  std::vector<mig::GpuPlan> plans;
  for (const GpuRequest& each : *requests) {
    Result<mig::GpuPlan> plan = mig::PlanFor(each.gpu, each.request, session.user_of());
    if (!plan.ok()) return plan.status();
    plans.push_back(std::move(*plan));
  }
  return plans;
}

int PrintPlans(const CommandLine& line, const std::vector<mig::GpuPlan>& plans) {
  json rows = json::array();
  std::string text;
  for (const mig::GpuPlan& plan : plans) {
    rows.push_back(mig::PlanJson(plan));
    text += mig::PlanText(plan);
  }
  return Print(line.as_json ? json{{"plans", rows}}.dump(2) + "\n" : text);
}

// ---- the commands

int ListBoard(const std::string& name) {
  const std::optional<mig::KnownBoard> known = mig::FindKnownBoard(name);
  if (!known) {
    std::string names;
    for (const mig::KnownBoard& each : mig::KnownBoards()) names += " " + each.board.name;
    return Reject({StatusCode::kNotFound, "board '" + name + "' is none of those known:" + names});
  }
  return Print(known->board.name + "\n" + mig::ProfilesText(known->board, {}) +
               "source: " + known->source + "\n");
}

int List(const CommandLine& line, const MigArguments& asked) {
  if (!asked.board.empty()) return ListBoard(asked.board);
  const Result<Session> session = Begin(line, asked, true);
  if (!session.ok()) return Reject(session.status());
  const Result<std::vector<mig::MigGpu>> gpus = session->control().Read();
  if (!gpus.ok()) return Reject(gpus.status());
  json rows = json::array();
  std::string text = gpus->empty() ? "no GPU\n" : "";
  for (const mig::MigGpu& gpu : *gpus) {
    const std::vector<mig::Present> have = mig::PresentOn(gpu, session->user_of());
    rows.push_back(mig::GpuJson(gpu, have));
    text += (text.empty() ? "" : "\n") + mig::GpuText(gpu, have);
  }
  return Print(line.as_json ? json{{"gpus", rows}}.dump(2) + "\n" : text);
}

// Plans for a machine whose only GPU is the named board. Needs no GPU. Skips a file's entries
// for specific models, because the board's model id is unknown.
int PlanBoard(const CommandLine& line, const MigArguments& asked) {
  const std::optional<mig::KnownBoard> known = mig::FindKnownBoard(asked.board);
  if (!known) return ListBoard(asked.board);
  mig::MigGpu gpu{.name = known->board.name,
                  .has_mig = true,
                  .is_enabled = true,
                  .is_pending = true,
                  .board = known->board};
  const Result<mig::Layout> have = mig::ParseLayout(gpu.board, asked.have);
  if (!have.ok()) return Reject(have.status());
  for (const mig::Instance& instance : *have) gpu.instances.push_back({.instance = instance});
  const Result<std::vector<GpuRequest>> requests = GetRequests({gpu}, asked);
  if (!requests.ok()) return Reject(requests.status());
  const Result<mig::GpuPlan> plan =
      mig::PlanFor(gpu, requests->front().request, [](const auto&, const auto&) { return ""; });
  return plan.ok() ? PrintPlans(line, {*plan}) : Reject(plan.status());
}

int PlanOnly(const CommandLine& line, const MigArguments& asked) {
  if (!asked.board.empty()) return PlanBoard(line, asked);
  const Result<Session> session = Begin(line, asked, true);
  if (!session.ok()) return Reject(session.status());
  const Result<std::vector<mig::GpuPlan>> plans = Plans(*session, asked);
  return plans.ok() ? PrintPlans(line, *plans) : Reject(plans.status());
}

int Apply(const CommandLine& line, const MigArguments& asked) {
  // The state file is locked, so that no other program changes the GPUs between planning and
  // execution.
  const Result<mig::StateFile> state = mig::StateFile::Open(asked.state);
  if (!state.ok()) return Reject(state.status());
  const Result<Session> session = Begin(line, asked, true);
  if (!session.ok()) return Reject(session.status());
  const Result<std::vector<mig::GpuPlan>> plans = Plans(*session, asked);
  if (!plans.ok()) return Reject(plans.status());
  if (const int printed = PrintPlans(line, *plans); printed != kDone) return printed;
  std::vector<mig::Change> changes;
  for (const mig::GpuPlan& plan : *plans) changes.push_back(plan.AsChange());
  const mig::GpuControl control = session->control();
  mig::Mover mover(control, *state, *session->tenant, PrintError);
  const Status applied = asked.is_at_boot ? mover.SaveForBoot(changes) : mover.Apply(changes);
  if (!applied.ok()) return Reject(applied);
  PrintError(asked.is_at_boot ? "saved for the next boot; nothing was changed now"
                              : "done, and saved for the next boot");
  return kDone;
}

int Assert(const CommandLine& line, const MigArguments& asked) {
  const Result<Session> session = Begin(line, asked, false);
  if (!session.ok()) return Reject(session.status());
  const Result<std::vector<mig::MigGpu>> gpus = session->control().Read();
  if (!gpus.ok()) return Reject(gpus.status());
  const Result<std::vector<GpuRequest>> requests = GetRequests(*gpus, asked);
  if (!requests.ok()) return Reject(requests.status());
  int code = kDone;
  for (const auto& [gpu, request] : *requests) {
    // If the request specifies no placements, only the number of instances of each profile is
    // compared, as in mig-parted.
    mig::Layout wanted;
    for (const mig::Wanted& one : request.wanted) {
      wanted.insert(wanted.end(), one.count, {.profile = one.profile, .compute = one.compute});
    }
    const bool is_cut_so = request.places ? gpu.layout() == *request.places
                                          : mig::GetDevices(gpu.board, gpu.layout()) ==
                                                mig::GetDevices(gpu.board, wanted);
    const bool is_so = gpu.trouble.empty() && gpu.is_enabled == request.is_enabled && is_cut_so;
    if (is_so) continue;
    code = kRejected;
    PrintError(gpu.Named() + (gpu.trouble.empty() ? " is partitioned differently"
                                                  : " does not answer: " + gpu.trouble));
  }
  return code;
}

int Export(const CommandLine& line, const MigArguments& asked) {
  const Result<Session> session = Begin(line, asked, false);
  if (!session.ok()) return Reject(session.status());
  const Result<std::vector<mig::MigGpu>> gpus = session->control().Read();
  if (!gpus.ok()) return Reject(gpus.status());
  mig::NamedConfig config{.name = asked.name};
  for (const mig::MigGpu& gpu : *gpus) {
    if (!gpu.trouble.empty()) {
      return Reject({StatusCode::kUnavailable, gpu.Named() + " does not answer: " + gpu.trouble});
    }
    if (!gpu.has_mig) continue;
    const mig::DeviceCounts devices = mig::GetDevices(gpu.board, gpu.layout());
    const auto same = std::ranges::find_if(config.entries, [&](const mig::ConfigEntry& entry) {
      return entry.is_enabled == gpu.is_enabled && entry.devices == devices;
    });
    if (same != config.entries.end()) {
      same->indices->push_back(gpu.index);
    } else {
      config.entries.push_back(
          {.indices = {{gpu.index}}, .is_enabled = gpu.is_enabled, .devices = devices});
    }
  }
  if (config.entries.empty()) {
    return Reject({StatusCode::kNotFound, "no GPU of this machine has MIG"});
  }
  const std::string text = mig::WriteConfigFile({config});
  if (asked.output.empty()) return Print(text);
  std::ofstream file(asked.output);
  file << text << std::flush;
  return file ? kDone : Reject({StatusCode::kInternal, "cannot write " + asked.output});
}

int Restore(const CommandLine& line, const MigArguments& asked) {
  const Result<mig::StateFile> state = mig::StateFile::Open(asked.state);
  if (!state.ok()) return Reject(state.status());
  const Result<Session> session = Begin(line, asked, false);
  if (!session.ok()) return Reject(session.status());
  const mig::GpuControl control = session->control();
  const Status restored = mig::Mover(control, *state, *session->tenant, PrintError).Restore();
  return restored.ok() ? kDone : Reject(restored);
}

// ---- options of the commands

using Arguments = std::shared_ptr<MigArguments>;

void AddRequest(const Command& command, const Arguments& asked) {
  const Option instances = command.AddOption("INSTANCES", asked->instances,
                                             "profiles by id or name, such as 19,19,14,9 or "
                                             "2x1g.5gb, or with placements 19:6,14:0; or none");
  const Option gpu =
      command.AddOption("--gpu", asked->gpu, "GPU by number or UUID (default: the only one)")
          .TypeName("GPU");
  const Option disable =
      command.AddFlag("--disable", asked->is_disabled, "MIG mode off").Excludes(instances);
  const Option config =
      command.AddOption("--config", asked->config, "name of a configuration in the file")
          .TypeName("NAME");
  const Option file =
      command.AddOption("--file", asked->file, "file in mig-parted's format, for all GPUs")
          .TypeName("FILE")
          .Needs(config)
          .Excludes(instances)
          .Excludes(disable)
          .Excludes(gpu);
  config.Needs(file);
}

bool HasRequest(const MigArguments& asked) {
  return !asked.instances.empty() || !asked.file.empty() || asked.is_disabled;
}

void AddMigCommand(CommandLine& line, const Command& mig, const char* name, const char* help,
                   const std::function<void(const Command&, const Arguments&)>& add,
                   int (*run)(const CommandLine&, const MigArguments&), bool takes_request) {
  const auto asked = std::make_shared<MigArguments>();
  const Command command = AddCommand(mig, name, help);
  if (takes_request) AddRequest(command, asked);
  add(command, asked);
  command.OnUse([&line, asked, run, takes_request] {
    if (takes_request && !HasRequest(*asked)) {
      command_line::Reject("INSTANCES, --file or --disable is required");
    }
    if (!asked->board.empty() && !asked->gpu.empty()) {
      command_line::Reject("--gpu names a GPU of this machine, --board a board without a GPU");
    }
    line.action = [&line, asked, run] { return run(line, *asked); };
  });
}

void AddState(const Command& command, const Arguments& asked) {
  command.AddOption("--state", asked->state, "file for the boot layouts and the change in progress")
      .TypeName("FILE");
  command
      .AddOption("--drain-time", asked->drain_s,
                 "seconds to wait for sessions on instances to be removed (default 30)")
      .Range(1U, 86400U);
}

}  // namespace

void AddMigCommands(CommandLine& line) {
  const Command mig = AddCommand(line.app, "mig", "partitioning of GPUs into MIG instances");
  mig.RequireCommand();
  AddMigCommand(
      line, mig, "list", "GPUs with their instances and profiles",
      [](const Command& command, const Arguments& asked) {
        command.AddOption("--board", asked->board,
                          "board whose profiles are listed without a GPU: A30, A100-40, ...");
      },
      List, false);
  AddMigCommand(
      line, mig, "plan", "plan of apply, without any change",
      [](const Command& command, const Arguments& asked) {
        const Option board =
            command.AddOption("--board", asked->board, "board to plan for without a GPU");
        command
            .AddOption("--have", asked->have, "existing instances of the board, such as 19:6,14:0")
            .Needs(board);
      },
      PlanOnly, true);
  AddMigCommand(
      line, mig, "apply", "partitioning of GPUs, all or none, now and at each boot",
      [](const Command& command, const Arguments& asked) {
        command.AddFlag("--at-boot", asked->is_at_boot, "no change now, only at the next boot");
        AddState(command, asked);
      },
      Apply, true);
  AddMigCommand(
      line, mig, "assert", "check of the partitioning: exit code 0 or 1",
      [](const Command&, const Arguments&) {}, Assert, true);
  AddMigCommand(
      line, mig, "export", "current partitioning as a file in mig-parted's format",
      [](const Command& command, const Arguments& asked) {
        command.AddOption("--output", asked->output, "output file (default: stdout)")
            .TypeName("FILE");
        command.AddOption("--name", asked->name, "name of the configuration");
      },
      Export, false);
  AddMigCommand(line, mig, "restore",
                "rollback of an interrupted change, and creation of the boot layouts", AddState,
                Restore, false);
}

}  // namespace gpushared::server
