// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/paths.h"

#include <algorithm>
#include <utility>

namespace gpushared::device::executor {
namespace {

Path TakeRunning(Warp& warp) {
  return {warp.pc,      warp.active,  warp.reconvergence,   warp.pause,
          warp.barrier, warp.members, std::move(warp.stack)};
}

void MakeRunning(Warp& warp, Path path) {
  warp.pc = path.pc;
  warp.active = path.active;
  warp.reconvergence = path.reconvergence;
  warp.pause = path.pause;
  warp.barrier = path.barrier;
  warp.members = path.members;
  warp.stack = std::move(path.stack);
}

// Entries restricted to some lanes; those left with none disappear.
std::vector<StackEntry> Restricted(const std::vector<StackEntry>& stack, std::uint32_t lanes) {
  std::vector<StackEntry> result;
  for (StackEntry entry : stack) {
    entry.mask &= lanes;
    if (entry.mask != 0) result.push_back(entry);
  }
  return result;
}

// Parks the active lanes and continues with the lanes that waited for them.
void SplitOff(Warp& warp) {
  const std::uint32_t leaving = warp.active;
  std::vector<StackEntry> rest = Restricted(warp.stack, ~leaving);
  Path parked = TakeRunning(warp);
  parked.stack = Restricted(parked.stack, leaving);
  warp.parked.push_back(std::move(parked));
  warp.stack = std::move(rest);
  warp.active = 0;
  warp.pause = Pause::kRunnable;
  const MicroOp* next = PopStack(warp);
  if (next != nullptr) warp.pc = static_cast<std::uint32_t>(next - warp.code);
}

// Both would do the same from here on.
bool SamePlace(const Path& a, const Path& b) {
  if (a.pc != b.pc || a.reconvergence != b.reconvergence || a.pause != b.pause) return false;
  return std::equal(a.stack.begin(), a.stack.end(), b.stack.begin(), b.stack.end(),
                    [](const StackEntry& x, const StackEntry& y) {
                      return x.pc == y.pc && x.reconvergence == y.reconvergence &&
                             x.is_call == y.is_call;
                    });
}

void Join(Path& into, const Path& from) {
  into.active |= from.active;
  into.members |= from.members;
  for (std::size_t i = 0; i < into.stack.size(); ++i) into.stack[i].mask |= from.stack[i].mask;
}

// Joins paths that stand at the same place. The running one must be outside calls.
void JoinPaths(Warp& warp) {
  if (warp.parked.empty() || warp.activations.size() > 1) return;
  std::vector<Path> paths = std::exchange(warp.parked, {});
  paths.push_back(TakeRunning(warp));
  std::vector<Path> joined;
  for (Path& path : paths) {
    const auto same = std::find_if(joined.begin(), joined.end(),
                                   [&](const Path& other) { return SamePlace(other, path); });
    if (same == joined.end()) {
      joined.push_back(std::move(path));
    } else {
      Join(*same, path);
    }
  }
  MakeRunning(warp, std::move(joined.back()));
  joined.pop_back();
  warp.parked = std::move(joined);
}

// Executes the op at which the running path waits, now that its wait is over, for
// `lanes`; the path itself keeps its own lanes.
void StepOver(Warp& warp, std::uint32_t lanes) {
  const std::uint32_t own = std::exchange(warp.active, lanes);
  warp.together = true;
  const MicroOp* op = warp.code + warp.pc;
  const MicroOp* next = op->handler(warp, op);
  warp.together = false;
  warp.active = own;
  // What waits never branches or faults after its wait, so `next` is the op behind it.
  warp.pc = next != nullptr ? static_cast<std::uint32_t>(next - warp.code) : warp.pc + 1;
  warp.pause = Pause::kRunnable;
}

// The group of paths that converge at `pc`: one of them executes for all.
void ReleaseGroup(Warp& warp, std::uint32_t pc, std::uint32_t lanes) {
  std::vector<Path> paths = std::exchange(warp.parked, {});
  paths.push_back(TakeRunning(warp));
  bool executed = false;
  std::uint32_t next = pc;
  for (Path& path : paths) {
    if (path.pause != Pause::kConverging || path.pc != pc) continue;
    if (!executed) {
      MakeRunning(warp, std::move(path));
      StepOver(warp, lanes);
      next = warp.pc;
      path = TakeRunning(warp);
      executed = true;
    }
    path.pc = next;
    path.pause = Pause::kRunnable;
  }
  MakeRunning(warp, std::move(paths.back()));
  paths.pop_back();
  warp.parked = std::move(paths);
  JoinPaths(warp);
}

}  // namespace

void SettlePath(Warp& warp) {
  if (warp.pause == Pause::kFaulted) return;
  if (warp.pause == Pause::kFinished) {
    if (warp.parked.empty()) return;
    MakeRunning(warp, std::move(warp.parked.back()));
    warp.parked.pop_back();
    return;
  }
  // A turn that ended in a plain long loop is no reason to cut the warp.
  const bool waits = warp.pause != Pause::kRunnable || warp.polled;
  if (waits && warp.activations.size() == 1 && WaitingLanes(warp) != 0) SplitOff(warp);
}

bool RotatePaths(Warp& warp) {
  if (warp.parked.empty() || warp.activations.size() > 1) return false;
  warp.parked.push_back(TakeRunning(warp));
  MakeRunning(warp, std::move(warp.parked.front()));
  warp.parked.erase(warp.parked.begin());
  return true;
}

bool ReleaseConverged(Warp& warp, bool forced) {
  if (warp.activations.size() > 1) return false;
  struct Group {
    std::uint32_t pc, lanes, members;
  };
  std::vector<Group> groups;
  const auto enter = [&](std::uint32_t pc, std::uint32_t lanes, std::uint32_t members) {
    for (Group& group : groups) {
      if (group.pc != pc) continue;
      group.lanes |= lanes;
      group.members |= members;
      return;
    }
    groups.push_back({pc, lanes, members});
  };
  if (warp.pause == Pause::kConverging) enter(warp.pc, warp.active, warp.members);
  for (const Path& path : warp.parked) {
    if (path.pause == Pause::kConverging) enter(path.pc, path.active, path.members);
  }
  bool released = false;
  for (const Group& group : groups) {
    const bool complete = (group.members & ~group.lanes & ~warp.exited) == 0;
    if (!complete && (!forced || released)) continue;
    ReleaseGroup(warp, group.pc, group.lanes);
    released = true;
  }
  return released;
}

void ReleaseFromBarrier(Warp& warp, std::uint32_t number, const Barrier& barrier) {
  warp.barrier_count = barrier.predicate_count;
  warp.barrier_all = barrier.all;
  warp.barrier_any = barrier.any;
  const std::size_t paths = warp.parked.size() + 1;
  for (std::size_t i = 0; i < paths; ++i) {
    if (warp.pause == Pause::kAtBarrier && warp.barrier == number) StepOver(warp, warp.active);
    if (!RotatePaths(warp)) break;
  }
  JoinPaths(warp);
}

}  // namespace gpushared::device::executor
