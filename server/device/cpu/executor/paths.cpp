// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/paths.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "server/device/cpu/executor/meeting.h"

namespace gpushared::device::executor {
namespace {

Path TakeRunning(Warp& warp) {
  return {warp.pc,      warp.active,           warp.reconvergence,         warp.pause,
          warp.barrier, std::move(warp.stack), std::move(warp.activations)};
}

void MakeRunning(Warp& warp, Path path) {
  warp.pc = path.pc;
  warp.active = path.active;
  warp.reconvergence = path.reconvergence;
  warp.pause = path.pause;
  warp.barrier = path.barrier;
  warp.stack = std::move(path.stack);
  warp.activations = std::move(path.activations);
  warp.frame = warp.registers + warp.activations.back().frame_offset;
  warp.local_base = warp.activations.back().local_base;
}

// Reduces a path's stack and calls to those that concern the given lanes.
void Restrict(Path* path, std::uint32_t lanes) {
  std::vector<StackEntry> stack;
  std::vector<Activation> activations = {path->activations.front()};
  std::size_t call = 0;
  for (StackEntry entry : path->stack) {
    call += entry.is_call ? 1 : 0;
    entry.mask &= lanes;
    if (entry.mask == 0) continue;
    stack.push_back(entry);
    if (entry.is_call) activations.push_back(path->activations[call]);
  }
  path->stack = std::move(stack);
  path->activations = std::move(activations);
}

// Sets aside the active lanes and continues with the lanes that waited for them.
void SplitOff(Warp& warp) {
  const std::uint32_t leaving = warp.active;
  Path waiting = TakeRunning(warp);
  Path rest = waiting;
  Restrict(&waiting, leaving);
  Restrict(&rest, ~leaving);
  rest.active = 0;
  rest.pause = Pause::kRunnable;
  warp.waiting.push_back(std::move(waiting));
  MakeRunning(warp, std::move(rest));
  const MicroOp* next = PopStack(warp);
  if (next != nullptr) warp.pc = static_cast<std::uint32_t>(next - warp.code);
}

// Returns whether both paths would execute the same code from here on.
bool SamePlace(const Path& a, const Path& b) {
  if (a.pc != b.pc || a.reconvergence != b.reconvergence || a.pause != b.pause) return false;
  return std::equal(a.stack.begin(), a.stack.end(), b.stack.begin(), b.stack.end(),
                    [](const StackEntry& x, const StackEntry& y) {
                      return x.pc == y.pc && x.reconvergence == y.reconvergence &&
                             x.is_call == y.is_call;
                    }) &&
         std::equal(a.activations.begin(), a.activations.end(), b.activations.begin(),
                    b.activations.end(), [](const Activation& x, const Activation& y) {
                      return x.function == y.function && x.frame_offset == y.frame_offset;
                    });
}

void Join(Path& into, const Path& from) {
  into.active |= from.active;
  for (std::size_t i = 0; i < into.stack.size(); ++i) into.stack[i].mask |= from.stack[i].mask;
}

// Joins paths at the same place.
void JoinPaths(Warp& warp) {
  if (warp.waiting.empty()) return;
  std::vector<Path> paths = std::exchange(warp.waiting, {});
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
  warp.waiting = std::move(joined);
}

template <typename T>
void CopyRow(const std::byte* from, std::byte* to, std::uint32_t lanes) {
  for (std::uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const std::size_t at = static_cast<std::size_t>(__builtin_ctz(rest)) * sizeof(T);
    std::memcpy(to + at, from + at, sizeof(T));
  }
}

// Copies the registers of some lanes between two frames of one function.
void CopyLanes(const Warp& warp, const Activation& from, const Activation& to,
               std::uint32_t lanes) {
  if (from.frame_offset == to.frame_offset) return;
  const FunctionCode& function = warp.block->code->functions[from.function];
  const std::byte* source = warp.registers + from.frame_offset;
  std::byte* target = warp.registers + to.frame_offset;
  for (std::uint32_t at = 0; at < function.narrow_begin; at += 4) {
    std::uint32_t mine = 0, other = 0;
    std::memcpy(&mine, target + at, 4);
    std::memcpy(&other, source + at, 4);
    mine = (mine & ~lanes) | (other & lanes);
    std::memcpy(target + at, &mine, 4);
  }
  for (std::uint32_t at = function.narrow_begin; at < function.wide_begin; at += kNarrowRowBytes) {
    CopyRow<std::uint32_t>(source + at, target + at, lanes);
  }
  for (std::uint32_t at = function.wide_begin; at < function.image_offset; at += kWideRowBytes) {
    CopyRow<std::uint64_t>(source + at, target + at, lanes);
  }
  for (const ScratchRow& row : function.scratch_rows) {
    if (row.wide) {
      CopyRow<std::uint64_t>(source + row.offset, target + row.offset, lanes);
    } else {
      CopyRow<std::uint32_t>(source + row.offset, target + row.offset, lanes);
    }
  }
}

// Executes the op at which the running path waits, now that its wait is over, for `lanes`; the path
// keeps its own lanes.
void StepOver(Warp& warp, std::uint32_t lanes) {
  const std::uint32_t own = std::exchange(warp.active, lanes);
  warp.together = true;
  const MicroOp* op = warp.code + warp.pc;
  const MicroOp* next = op->handler(warp, op);
  warp.together = false;
  warp.active = own;
  if (warp.pause == Pause::kFaulted) return;
  // Null means that the turn is over after the op.
  if (next != nullptr) warp.pc = static_cast<std::uint32_t>(next - warp.code);
  warp.pause = Pause::kRunnable;
}

bool IsMeeting(Pause pause) { return pause == Pause::kConverging || pause == Pause::kAligning; }

template <typename Test>
bool AnyPath(const Warp& warp, Test test) {
  return test(warp) || std::any_of(warp.waiting.begin(), warp.waiting.end(), test);
}

// Returns all paths of the warp, the running one last. PutPaths resumes the last one.
std::vector<Path> TakePaths(Warp& warp) {
  std::vector<Path> paths = std::exchange(warp.waiting, {});
  paths.push_back(TakeRunning(warp));
  return paths;
}

void PutPaths(Warp& warp, std::vector<Path> paths) {
  MakeRunning(warp, std::move(paths.back()));
  paths.pop_back();
  warp.waiting = std::move(paths);
}

// When all lanes of the warp have reached one instruction, one of their paths executes it for all.
// The other paths may have entered the function by different calls, so the registers of their lanes
// are copied to the frame of the executing path and back.
bool ReleaseAligned(Warp& warp) {
  const bool together = !AnyPath(
      warp, [&](const auto& path) { return path.pause != Pause::kAligning || path.pc != warp.pc; });
  if (!together) return false;
  std::vector<Path> paths = TakePaths(warp);
  const Activation frame = paths.back().activations.back();
  for (const Path& path : paths) {
    CopyLanes(warp, path.activations.back(), frame, path.active);
  }
  MakeRunning(warp, std::move(paths.back()));
  StepOver(warp, ~warp.exited);
  if (warp.pause == Pause::kFaulted) return true;
  paths.back() = TakeRunning(warp);
  for (Path& path : paths) {
    path.pc = paths.back().pc;
    path.pause = Pause::kRunnable;
    CopyLanes(warp, frame, path.activations.back(), path.active);
  }
  PutPaths(warp, std::move(paths));
  JoinPaths(warp);
  return true;
}

// Moves those of `lanes` that are in the path past its instruction; the others remain.
void Advance(std::vector<Path>& paths, std::size_t index, std::uint32_t lanes) {
  const std::uint32_t ahead = paths[index].active & lanes;
  if (ahead == 0) return;
  if (ahead != paths[index].active) {
    Path rest = paths[index];
    Restrict(&rest, ~ahead);
    rest.active &= ~ahead;
    Restrict(&paths[index], ahead);
    paths[index].active = ahead;
    paths.push_back(std::move(rest));
  }
  ++paths[index].pc;
  paths[index].pause = Pause::kRunnable;
}

bool ReleaseMembers(Warp& warp) {
  std::vector<Path> paths = TakePaths(warp);
  Meeting meeting(warp);
  std::uint32_t ahead = 0;
  for (const Path& path : paths) {
    if (path.pause == Pause::kConverging) ahead |= path.active & ~meeting.Add(path);
  }
  ahead |= meeting.Act();
  const std::size_t count = paths.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (paths[i].pause == Pause::kConverging) Advance(paths, i, ahead);
  }
  PutPaths(warp, std::move(paths));
  if (ahead != 0) JoinPaths(warp);
  return ahead != 0;
}

}  // namespace

void SettlePath(Warp& warp) {
  if (warp.pause == Pause::kFaulted) return;
  if (warp.pause == Pause::kFinished) {
    if (warp.waiting.empty()) return;
    MakeRunning(warp, std::move(warp.waiting.back()));
    warp.waiting.pop_back();
    return;
  }
  // A turn that ended in a long loop without polling does not require splitting the warp.
  const bool waits = warp.pause != Pause::kRunnable || warp.polled;
  if (waits && WaitingLanes(warp) != 0) SplitOff(warp);
}

bool RotatePaths(Warp& warp) {
  if (warp.waiting.empty()) return false;
  warp.waiting.push_back(TakeRunning(warp));
  MakeRunning(warp, std::move(warp.waiting.front()));
  warp.waiting.erase(warp.waiting.begin());
  return true;
}

bool ReleaseConverged(Warp& warp) {
  if (!AnyPath(warp, [](const auto& path) { return IsMeeting(path.pause); })) return false;
  return ReleaseAligned(warp) || ReleaseMembers(warp);
}

bool RaiseMissingLanes(Warp& warp) {
  if (!AnyPath(warp, [](const auto& path) { return IsMeeting(path.pause); })) return false;
  std::vector<Path> paths = TakePaths(warp);
  Meeting meeting(warp);
  for (const Path& path : paths) {
    if (path.pause == Pause::kConverging) meeting.Add(path);
  }
  auto group = meeting.Incomplete();
  if (!group) {
    const auto aligning = std::ranges::find(paths, Pause::kAligning, &Path::pause);
    group = {.lanes = aligning->active, .missing = ~aligning->active & ~warp.exited};
  }
  const auto path_of = [&](std::uint32_t lanes) {
    const std::uint32_t lane = lanes & (0u - lanes);
    return std::ranges::find_if(paths, [&](const Path& p) { return (p.active & lane) != 0; });
  };
  const auto first = path_of(group->lanes), missing = path_of(group->missing);
  const MicroOp* const op = warp.code + first->pc;
  RaiseFault(warp, op, Fault::Kind::kMissingLanes,
             static_cast<std::uint32_t>(__builtin_ctz(group->lanes)), group->missing, group->lanes);
  if (missing != paths.end()) {
    const std::uint32_t line = warp.block->code->sources[missing->pc].line;
    warp.block->fault->message += ": lane " + std::to_string(__builtin_ctz(group->missing)) +
                                  " waits at PTX line " + std::to_string(line);
  }
  return true;
}

void ReleaseFromBarrier(Warp& warp, std::uint32_t number, const Barrier& barrier) {
  warp.barrier_count = barrier.predicate_count;
  warp.barrier_all = barrier.all;
  warp.barrier_any = barrier.any;
  const std::size_t paths = warp.waiting.size() + 1;
  for (std::size_t i = 0; i < paths; ++i) {
    if (warp.pause == Pause::kAtBarrier && warp.barrier == number) StepOver(warp, warp.active);
    if (!RotatePaths(warp)) break;
  }
  JoinPaths(warp);
}

}  // namespace gpushared::device::executor
