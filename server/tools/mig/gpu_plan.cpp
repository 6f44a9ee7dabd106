// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/gpu_plan.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "server/tools/mig/picture.h"

#include <nlohmann/json.hpp>

namespace gpushared::mig {
namespace {

using nlohmann::json;

constexpr const char* kLegend = "= kept   * kept, in use   - destroyed   + created\n";

bool Has(const Layout& layout, const Instance& instance) {
  return std::ranges::find(layout, instance) != layout.end();
}

Status Rejected(const MigGpu& gpu, const Status& why) {
  return {why.code(), gpu.Named() + ": " + why.message()};
}

Status ModeRejected(const MigGpu& gpu, const std::string& what, const std::string& user) {
  return {StatusCode::kUnavailable,
          gpu.Named() + ": change of MIG mode rejected: " + what + " is used by " + user};
}

std::string Count(std::size_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

// Returns how many more instances of a profile fit. Placements of one profile do not overlap, so
// counting those that are free suffices.
std::uint32_t GetFree(const Board& board, const Profile& profile, const Layout& layout) {
  std::uint32_t used = 0, same = 0, free = 0;
  for (const Instance& instance : layout) {
    const Profile* const other = board.Find(instance.profile);
    if (other == nullptr) continue;
    used |= ((std::uint32_t{1} << other->memory_slices) - 1) << instance.start;
    same += instance.profile == profile.id ? 1 : 0;
  }
  for (const std::uint32_t start : profile.starts) {
    const std::uint32_t slices = ((std::uint32_t{1} << profile.memory_slices) - 1) << start;
    free += (used & slices) == 0 ? 1 : 0;
  }
  return std::min(free, profile.count_max - std::min(same, profile.count_max));
}

json InstanceJson(const Board& board, const Instance& instance) {
  return {{"profile", KindName(board, instance.profile, instance.compute)},
          {"profile_id", instance.profile},
          {"start", instance.start},
          {"compute_slices", instance.compute}};
}

json LayoutJson(const Board& board, const Layout& layout) {
  json rows = json::array();
  for (const Instance& instance : layout) rows.push_back(InstanceJson(board, instance));
  return rows;
}

std::string Devices(const LiveInstance& live) {
  std::string uuids;
  for (const LiveCompute& compute : live.compute)
    uuids += (uuids.empty() ? "" : ", ") + compute.uuid;
  return uuids;
}

}  // namespace

bool GpuPlan::ChangesNothing() const {
  return gpu.is_enabled == is_enabled && gpu.is_pending == is_enabled && plan.ChangesNothing();
}

Change GpuPlan::AsChange() const {
  return {.before = {.gpu = gpu.uuid, .is_enabled = gpu.is_enabled, .layout = gpu.layout()},
          .after = {.gpu = gpu.uuid, .is_enabled = is_enabled, .layout = plan.After()}};
}

std::vector<Present> PresentOn(const MigGpu& gpu, const GetUser& user_of) {
  std::vector<Present> have;
  for (const LiveInstance& live : gpu.instances) {
    Present present{.instance = live.instance};
    for (const LiveCompute& compute : live.compute) {
      const std::string user = user_of(compute.uuid, compute.processes);
      if (!user.empty()) present.user += (present.user.empty() ? "" : ", ") + user;
    }
    have.push_back(std::move(present));
  }
  return have;
}

Result<GpuPlan> PlanFor(const MigGpu& gpu, const Request& request, const GetUser& user_of) {
  if (!gpu.trouble.empty()) {
    return Status(StatusCode::kUnavailable, gpu.Named() + " does not answer: " + gpu.trouble);
  }
  GpuPlan plan{.gpu = gpu, .have = PresentOn(gpu, user_of), .is_enabled = request.is_enabled};
  if (!gpu.has_mig) {
    if (!request.is_enabled) return plan;
    return Status(StatusCode::kUnsupported, gpu.Named() + " has no MIG mode");
  }
  if (gpu.is_enabled != request.is_enabled) {
    const std::string user = gpu.is_enabled ? "" : user_of(gpu.uuid, gpu.processes);
    if (!user.empty()) return ModeRejected(gpu, "the GPU", user);
    for (const Present& present : plan.have) {
      if (present.user.empty()) continue;
      return ModeRejected(gpu, InstanceName(gpu.board, present.instance), present.user);
    }
  }
  if (gpu.is_enabled != request.is_enabled) plan.holders = GetHolders(gpu.minor);
  if (!request.is_enabled) {
    plan.plan.destroy = gpu.layout();
    return plan;
  }
  Result<Plan> found = request.places ? MakeExactPlan(gpu.board, plan.have, *request.places)
                                      : MakePlan(gpu.board, plan.have, request.wanted);
  if (!found.ok()) return Rejected(gpu, found.status());
  plan.plan = std::move(*found);
  return plan;
}

std::string PlanText(const GpuPlan& planned) {
  const auto& [gpu, have, is_enabled, plan, holders] = planned;
  std::string text = gpu.Named() + ": ";
  if (planned.ChangesNothing()) {
    text += is_enabled ? "nothing to change\n" : "nothing to change, MIG mode is off\n";
  } else {
    text += Count(plan.keep.size(), "instance") + " kept, " + std::to_string(plan.destroy.size()) +
            " destroyed, " + std::to_string(plan.create.size()) + " created\n";
  }
  if (gpu.is_enabled != is_enabled) {
    text += std::string("MIG mode is turned ") + (is_enabled ? "on" : "off") +
            ": up to Ampere this requires a reset, which the driver performs only if no process "
            "holds the GPU\n";
    for (const Holder& holder : holders) {
      text += "held by " + ProcessText(holder.pid) + "\n";
    }
  }
  if (gpu.board.profiles.empty()) return text;
  PictureRow before{.label = "before"}, after{.label = "after"};
  for (const Present& present : have) {
    const char stays = present.user.empty() ? '=' : '*';
    const char mark = Has(plan.keep, present.instance) ? stays : '-';
    before.drawn.push_back({present.instance, mark});
    if (mark != '-') after.drawn.push_back({present.instance, mark});
  }
  for (const Instance& instance : plan.create) after.drawn.push_back({instance, '+'});
  text += Picture(gpu.board, {before, after}) + kLegend;
  for (const LiveInstance& live : gpu.instances) {
    if (!Has(plan.destroy, live.instance)) continue;
    text += "lost: " + InstanceName(gpu.board, live.instance) + " with the contents of its memory" +
            (live.compute.empty() ? "" : ", " + Devices(live)) + "; unused\n";
  }
  return text;
}

json PlanJson(const GpuPlan& plan) {
  const Board& board = plan.gpu.board;
  return {{"gpu", plan.gpu.index},
          {"uuid", plan.gpu.uuid},
          {"mig_before", plan.gpu.is_enabled},
          {"mig_after", plan.is_enabled},
          {"keep", LayoutJson(board, plan.plan.keep)},
          {"destroy", LayoutJson(board, plan.plan.destroy)},
          {"create", LayoutJson(board, plan.plan.create)}};
}

std::string ProfilesText(const Board& board, const Layout& layout) {
  std::string text = "profile       id  most  free  memory MiB   SMs  starts at slice\n";
  for (const Profile& profile : board.profiles) {
    char line[128];
    const auto shown = [](std::uint64_t value) { return value > 0 ? std::to_string(value) : "-"; };
    std::snprintf(line, sizeof line, "%-12s %3u %5u %5u  %10s %5s ", profile.name.c_str(),
                  profile.id, profile.count_max, GetFree(board, profile, layout),
                  shown(profile.memory_mib).c_str(), shown(profile.multiprocessors).c_str());
    text += line;
    for (const std::uint32_t start : profile.starts) text += " " + std::to_string(start);
    text += "\n";
  }
  return text;
}

std::string GpuText(const MigGpu& gpu, const std::vector<Present>& have) {
  std::string text = gpu.Named() + " " + gpu.uuid + ": ";
  if (!gpu.trouble.empty()) return text + gpu.trouble + "\n";
  if (!gpu.has_mig) return text + "no MIG mode\n";
  text += std::string("MIG mode ") + (gpu.is_enabled ? "on" : "off");
  if (gpu.is_enabled != gpu.is_pending) {
    text += std::string(", ") + (gpu.is_pending ? "on" : "off") + " after a reset";
  }
  PictureRow now{.label = "now"};
  for (const Present& present : have) {
    now.drawn.push_back({present.instance, present.user.empty() ? ' ' : '*'});
  }
  text += "\n" + Picture(gpu.board, {now});
  for (std::size_t i = 0; i < gpu.instances.size(); ++i) {
    const LiveInstance& live = gpu.instances[i];
    text += InstanceName(gpu.board, live.instance) + ": " +
            (live.compute.empty() ? "no device" : Devices(live)) +
            (have[i].user.empty() ? "" : ", used by " + have[i].user) + "\n";
  }
  return text + ProfilesText(gpu.board, gpu.layout());
}

json GpuJson(const MigGpu& gpu, const std::vector<Present>& have) {
  json row = {
      {"gpu", gpu.index},       {"uuid", gpu.uuid},          {"name", gpu.name},
      {"has_mig", gpu.has_mig}, {"mig", gpu.is_enabled},     {"mig_after_reset", gpu.is_pending},
      {"trouble", gpu.trouble}, {"profiles", json::array()}, {"instances", json::array()}};
  for (const Profile& profile : gpu.board.profiles) {
    row["profiles"].push_back({{"profile", profile.name},
                               {"profile_id", profile.id},
                               {"most", profile.count_max},
                               {"free", GetFree(gpu.board, profile, gpu.layout())},
                               {"memory_mib", profile.memory_mib},
                               {"multiprocessors", profile.multiprocessors},
                               {"memory_slices", profile.memory_slices},
                               {"starts", profile.starts}});
  }
  for (std::size_t i = 0; i < gpu.instances.size(); ++i) {
    json instance = InstanceJson(gpu.board, gpu.instances[i].instance);
    instance["gpu_instance"] = gpu.instances[i].id;
    instance["used_by"] = have[i].user;
    instance["devices"] = json::array();
    for (const LiveCompute& compute : gpu.instances[i].compute) {
      instance["devices"].push_back(compute.uuid);
    }
    row["instances"].push_back(std::move(instance));
  }
  return row;
}

}  // namespace gpushared::mig
