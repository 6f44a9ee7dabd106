// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/apply.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "server/tools/mig/holders.h"
#include "server/tools/mig/planner.h"

namespace gpushared::mig {
namespace {

constexpr std::size_t kUsersNamedMax = 4;

bool Has(const Layout& layout, const Instance& instance) {
  return std::ranges::find(layout, instance) != layout.end();
}

std::string UsersOfInstance(const LiveInstance& live) {
  std::vector<std::uint32_t> processes;
  for (const LiveCompute& compute : live.compute) {
    processes.insert(processes.end(), compute.processes.begin(), compute.processes.end());
  }
  return GetUsers(processes);
}

// Adds advice for the operator to the rejection.
Status ModeRejection(const MigGpu& gpu, const Status& why) {
  if (why.code() == StatusCode::kNotReady) {
    std::string holders;
    for (const Holder& holder : GetHolders(gpu.minor)) {
      holders +=
          (holders.empty() ? "" : ", ") + std::to_string(holder.pid) + " (" + holder.name + ")";
    }
    return {why.code(),
            why.message() + "; this requires a reset of the GPU, which is held by " +
                (holders.empty() ? "something other than a process, such as nvidia_drm" : holders) +
                "; stop that, or save the layout for the next boot with --at-boot"};
  }
  if (why.code() == StatusCode::kUnsupported) {
    return {why.code(),
            why.message() +
                "; this requires a reset that is not possible here, for example in a virtual "
                "machine; save the layout with --at-boot, and reboot"};
  }
  return why;
}

}  // namespace

std::string GetUsers(const std::vector<std::uint32_t>& processes,
                     const std::vector<std::uint32_t>& not_counted) {
  std::string users;
  std::size_t count = 0;
  for (const std::uint32_t pid : processes) {
    if (std::ranges::find(not_counted, pid) != not_counted.end()) continue;
    if (++count > kUsersNamedMax) continue;
    users += (users.empty() ? "" : ", ") + ProcessText(static_cast<pid_t>(pid));
  }
  if (count > kUsersNamedMax) users += " and " + std::to_string(count - kUsersNamedMax) + " others";
  return users;
}

Status Mover::Begin(const std::vector<Change>& changes, SavedState& state) const {
  Result<SavedState> loaded = state_.Load();
  if (!loaded.ok()) return loaded.status();
  if (!loaded->under_way.empty()) {
    return {StatusCode::kUnavailable,
            "MIG change rejected: an earlier one was interrupted; gpusharedctl mig restore rolls "
            "it back"};
  }
  state = std::move(*loaded);
  state.under_way = changes;
  return state_.Save(state);
}

Status Mover::Apply(const std::vector<Change>& changes) {
  SavedState state;
  if (Status begun = Begin(changes, state); !begun.ok()) return begun;
  Status moved;
  for (const Change& change : changes) {
    moved = MoveTo(change.after);
    if (!moved.ok()) break;
  }
  const Status returned = moved.ok() ? Status::Ok() : GoBack(changes);
  LetComeBack();
  if (!returned.ok()) {
    return {moved.code(), moved.message() + "; the rollback failed, too: " + returned.message() +
                              "; " + state_.path() +
                              " records it, and gpusharedctl mig restore tries it again"};
  }
  state.under_way.clear();
  if (moved.ok()) {
    for (const Change& change : changes) state.SetAtBoot(change.after);
  }
  const Status saved = state_.Save(state);
  if (moved.ok()) return saved;
  return {moved.code(), moved.message() + "; the previous layout was restored" +
                            (saved.ok() ? "" : "; " + saved.message())};
}

Status Mover::SaveForBoot(const std::vector<Change>& changes) {
  SavedState state;
  if (Status begun = Begin({}, state); !begun.ok()) return begun;
  for (const Change& change : changes) state.SetAtBoot(change.after);
  return state_.Save(state);
}

Status Mover::GoBack(const std::vector<Change>& changes) {
  log_("rolling back");
  Status first;
  for (const Change& change : changes | std::views::reverse) {
    const Status moved = MoveTo(change.before);
    if (first.ok()) first = moved;
  }
  return first;
}

Status Mover::Restore() {
  Result<SavedState> state = state_.Load();
  if (!state.ok()) return state.status();
  Status first;
  const auto keep = [&](const Status& moved) {
    if (moved.ok()) return;
    if (first.ok()) {
      first = moved;
    } else {
      log_(moved.message());
    }
  };
  std::vector<std::string> taken_back;
  if (!state->under_way.empty()) {
    keep(GoBack(state->under_way));
    for (const Change& change : state->under_way) taken_back.push_back(change.before.gpu);
    if (first.ok()) {
      state->under_way.clear();
      keep(state_.Save(*state));
    }
  }
  for (const GpuLayout& layout : state->at_boot) {
    if (std::ranges::find(taken_back, layout.gpu) == taken_back.end()) keep(MoveTo(layout));
  }
  LetComeBack();
  return first;
}

void Mover::LetComeBack() {
  const Result<std::vector<MigGpu>> gpus = control_.Read();
  if (!gpus.ok()) return tenant_.ComeBack(std::nullopt);
  std::vector<std::string> there;
  for (const MigGpu& gpu : *gpus) {
    if (!gpu.is_enabled) there.push_back(gpu.uuid);
    for (const LiveInstance& live : gpu.instances) {
      for (const LiveCompute& compute : live.compute) there.push_back(compute.uuid);
    }
  }
  tenant_.ComeBack(there);
}

Status Mover::MoveTo(const GpuLayout& target) {
  Result<MigGpu> gpu = control_.Find(target.gpu);
  if (!gpu.ok()) return gpu.status();
  const bool has_mode =
      gpu->is_enabled == target.is_enabled && gpu->is_pending == target.is_enabled;
  if (!has_mode) {
    if (Status moved = MoveMode(*gpu, target); !moved.ok()) return moved;
  }
  if (!target.is_enabled) return Status::Ok();
  if (Status destroyed = DestroyOthers(target.gpu, target.layout); !destroyed.ok())
    return destroyed;
  return CreateMissing(target.gpu, target.layout);
}

Status Mover::MoveMode(const MigGpu& gpu, const GpuLayout& target) {
  const bool changes_now = gpu.is_enabled != target.is_enabled;
  if (changes_now && gpu.is_enabled) {
    if (Status destroyed = DestroyOthers(target.gpu, {}); !destroyed.ok()) return destroyed;
  }
  if (changes_now && !gpu.is_enabled) {
    if (Status left = tenant_.Leave(target.gpu); !left.ok()) return left;
  }
  if (changes_now) {
    log_(gpu.Named() + ": turning MIG mode " + (target.is_enabled ? "on" : "off"));
  }
  const Status set = control_.SetMode(gpu, target.is_enabled);
  return set.ok() ? set : ModeRejection(gpu, set);
}

Status Mover::DestroyOthers(const std::string& uuid, const Layout& target) {
  Result<MigGpu> gpu = control_.Find(uuid);
  if (!gpu.ok()) return gpu.status();
  for (const LiveInstance& live : gpu->instances) {
    if (Has(target, live.instance)) continue;
    for (const LiveCompute& compute : live.compute) {
      if (compute.uuid.empty()) continue;
      if (Status left = tenant_.Leave(compute.uuid); !left.ok()) return left;
    }
  }
  // Reads the GPU again: processes that use it may have exited with the tenant, or new ones may
  // have started.
  gpu = control_.Find(uuid);
  if (!gpu.ok()) return gpu.status();
  for (const LiveInstance& live : gpu->instances) {
    const std::string users = Has(target, live.instance) ? "" : UsersOfInstance(live);
    if (users.empty()) continue;
    return {StatusCode::kNotReady, gpu->Named() + ": " + InstanceName(gpu->board, live.instance) +
                                       " is not destroyed: it is used by " + users};
  }
  for (const LiveInstance& live : gpu->instances) {
    if (Has(target, live.instance)) continue;
    log_(gpu->Named() + ": destroying " + InstanceName(gpu->board, live.instance));
    if (Status destroyed = control_.Destroy(*gpu, live); !destroyed.ok()) return destroyed;
  }
  return Status::Ok();
}

Status Mover::CreateMissing(const std::string& uuid, const Layout& target) {
  Result<MigGpu> gpu = control_.Find(uuid);
  if (!gpu.ok()) return gpu.status();
  if (Status possible = CheckLayout(gpu->board, target); !possible.ok()) return possible;
  const Layout there = gpu->layout();
  for (const Instance& instance : target) {
    if (Has(there, instance)) continue;
    log_(gpu->Named() + ": creating " + InstanceName(gpu->board, instance));
    if (Status created = control_.Create(*gpu, instance); !created.ok()) return created;
  }
  // Reads the GPU again, because the driver may have created something other than requested.
  gpu = control_.Find(uuid);
  if (!gpu.ok()) return gpu.status();
  Layout wanted = target;
  std::ranges::sort(wanted, {}, &Instance::start);
  if (gpu->layout() == wanted) return Status::Ok();
  return {StatusCode::kInternal, gpu->Named() + " has other instances than those requested"};
}

}  // namespace gpushared::mig
