// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/channel.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "gpushared/check.h"

#include "server/device/cuda/cuda_module.h"
#include "server/device/shown_name.h"

namespace gpushared::device::cuda {
namespace {

// A batch of this length is closed although the caller has not polled yet.
constexpr std::size_t kBatchPartsMax = 64;
// More marks would make the GPU wait more often without useful information.
constexpr std::size_t kMarksOut = 2;
// Groups of a work item in flight: while the end of one is detected, the next one runs.
constexpr std::uint32_t kGroupsAhead = 2;
// Number of a graph's nodes that are issued together. Issuing them takes 0.1 ms at 2 µs each.
constexpr std::uint64_t kNodesPerPart = 64;
// Number of a graph's parts in flight. A stop waits for them.
constexpr std::uint32_t kNodePartsAhead = 4;

}  // namespace

Channel::~Channel() {
  CudaContext& context = environment_.context;
  if (context.is_dead() || !context.Bind().ok()) return;
  (void)context.Call(context.driver().StreamDestroy, stream_);
}

void Channel::Add(std::unique_ptr<Item> item) {
  if (FollowsStopped(*item)) {
    item->is_closed = item->is_stopped = true;
    ++stopped_;
  }
  items_.push_back(std::move(item));
  Issue();
}

// ---- issuing

void Channel::Issue() {
  while (closed_ < items_.size()) {
    Item& item = *items_[closed_];
    if (!item.is_closed &&
        !(environment_.context.idle_windows().MayIssue(is_high_) && IssueNext(item))) {
      return;
    }
    if (item.is_closed) ++closed_;
  }
}

bool Channel::IssueNext(Item& item) {
  if (item.issued == item.units) {
    item.is_closed = true;
    return true;
  }
  if (parts_.size() >= environment_.limits.parts_max) return false;
  if (item.claimed != nullptr) return IssueClaims(item);
  if (FollowsClaims(item)) return false;
  if (std::holds_alternative<GraphWork>(item.work)) return IssueNodes(item);
  return item.is_launch() ? IssueWhole(item) : IssueGroup(item);
}

bool Channel::IssueNodes(Item& item) {
  if (item.parts_running >= kNodePartsAhead) return false;
  const auto& graph = std::get<GraphWork>(item.work);
  const bool is_known = environment_.graphs != nullptr && environment_.graphs->Has(graph);
  if (!is_known && !HasKernels(item)) return item.is_closed;
  if (!OpenBatch(item)) return false;
  // Instantiated graphs are not used in a partition, because their kernels would run in the context
  // that loaded the kernels.
  if (item.issued == 0 && environment_.graphs != nullptr && !is_of_part_) {
    item.instantiated = environment_.graphs->Take(graph);
    if (item.instantiated != nullptr) return IssueInstantiated(item);
  }
  const std::uint64_t end = std::min(item.units, item.issued + kNodesPerPart);
  const std::uint64_t first = item.issued;
  Status status;
  while (status.ok() && item.issued < end) {
    status = IssueNode(*graph.nodes[item.issued]);
    if (status.ok()) ++item.issued;
  }
  // The nodes before the rejected one were issued, so their ends are awaited and counted.
  if (!status.ok()) Fail(item, std::move(status));
  item.is_closed = item.is_closed || item.issued == item.units;
  if (item.issued > first) {
    AddPart({.item = &item, .group = {.end_unit = item.issued}, .detour = {}});
  }
  return true;
}

bool Channel::IssueInstantiated(Item& item) {
  Status status = item.instantiated->Launch(stream_);
  item.is_closed = true;
  if (!status.ok()) {
    Fail(item, std::move(status));
    ReturnInstantiated(item);
    return true;
  }
  item.issued = item.units;
  AddPart({.item = &item, .group = {.end_unit = item.units}, .detour = {}});
  return true;
}

void Channel::ReturnInstantiated(Item& item) {
  environment_.graphs->Return(std::get<GraphWork>(item.work));
  item.instantiated = nullptr;
}

Status Channel::IssueNode(const GraphNode& node) {
  CudaContext& context = environment_.context;
  constexpr std::uint64_t kWhole = std::numeric_limits<std::uint64_t>::max();
  if (const auto* const launch = std::get_if<LaunchWork>(&node)) {
    return IssueLaunch(context, *launch, multiprocessors_, stream_);
  }
  if (const auto* const copy = std::get_if<CopyWork>(&node)) {
    return IssueCopy(context, *copy, GroupAt(0, copy->width_bytes, copy->height, kWhole), {},
                     stream_);
  }
  const auto& fill = std::get<FillWork>(node);
  return IssueFill(context, fill, GroupAt(0, fill.width_bytes, fill.height, kWhole), stream_);
}

bool Channel::FollowsClaims(const Item& item) const {
  return claimed_ > 0 && std::ranges::any_of(items_, [&](const std::unique_ptr<Item>& each) {
           return each.get() != &item && each->slot &&
                  each->header().stream == item.header().stream;
         });
}

bool Channel::FollowsStopped(const Item& item) const {
  return stopped_ > 0 && std::ranges::any_of(items_, [&](const std::unique_ptr<Item>& each) {
           return each->is_stopped && each->claimed != nullptr &&
                  each->header().stream == item.header().stream;
         });
}

// The kernels of a graph are requested in parts, so that other clients' kernels are loaded in
// between.
bool Channel::HasKernels(Item& item) {
  constexpr std::size_t kAskedMax = 16;
  const bool is_urgent = item.header().priority >= kHighestPriority;
  const auto* const graph = std::get_if<GraphWork>(&item.work);
  const std::size_t nodes = graph != nullptr ? graph->nodes.size() : 1;
  std::size_t asked = 0;
  for (std::size_t i = item.ready_nodes; i < nodes && asked < kAskedMax; ++i) {
    const LaunchWork* const launch = graph != nullptr ? std::get_if<LaunchWork>(graph->nodes[i])
                                                      : &std::get<LaunchWork>(item.work);
    if (launch != nullptr) {
      const auto& module = static_cast<const CudaModule&>(*launch->module);
      const Result<bool> is_ready = module.IsReady(launch->kernel, is_urgent);
      if (!is_ready.ok()) {
        if (!item.is_closed) Fail(item, is_ready.status());
        return false;
      }
      asked += *is_ready ? 0 : 1;
    }
    if (asked == 0) item.ready_nodes = i + 1;
  }
  return item.ready_nodes == nodes;
}

bool Channel::IssueWhole(Item& item) {
  if (!HasKernels(item)) return item.is_closed;
  if (!EnterContained(item)) return item.is_closed;
  if (!OpenBatch(item)) return false;
  Status status =
      IssueLaunch(environment_.context, std::get<LaunchWork>(item.work), multiprocessors_, stream_);
  item.is_closed = true;
  if (!status.ok()) {
    Fail(item, std::move(status));
    if (item.contained != nullptr) item.contained->Withdraw();
    return true;
  }
  item.issued = item.units;
  AddPart({.item = &item, .group = {.end_unit = item.units}, .detour = {}});
  return true;
}

bool Channel::IssueClaims(Item& item) {
  const bool is_behind = FollowsClaims(item);
  if (item.parts_running >= (is_behind ? 1 : kGroupsAhead)) return false;
  if (!item.slot) {
    item.slot = environment_.claims->Take(number_);
    if (!item.slot) return false;
    ++claimed_;
  }
  if (!EnterContained(item)) return item.is_closed;
  if (!OpenBatch(item)) return false;
  // Groups have no blocks of their own: each issued block claims the next remaining block of the
  // grid.
  const std::uint64_t blocks = std::min(
      item.units - item.issued, is_behind ? item.claim_ahead_blocks : item.claim_group_blocks);
  Status status = IssuePreemptibleGroup(item, blocks);
  if (!status.ok()) {
    Fail(item, std::move(status));
    if (item.contained != nullptr) item.contained->Withdraw();
    return true;
  }
  item.issued += blocks;
  item.is_closed = item.issued == item.units;
  AddPart({.item = &item, .group = {.end_unit = item.issued}, .detour = {}});
  // The end of each group allows a further group to be issued, so every group has its own mark.
  CloseBatch();
  return true;
}

Status Channel::IssuePreemptibleGroup(Item& item, std::uint64_t blocks) {
  ClaimWords& words = *environment_.claims;
  const auto& work = std::get<LaunchWork>(item.work);
  if (item.issued == work.first_unit) {
    const Result<std::uint32_t> base =
        words.Begin(*item.slot, static_cast<std::uint32_t>(item.issued), stream_);
    if (!base.ok()) return base.status();
    item.claim_base = *base;
  }
  const ptx::ClaimParameter claim{.counter = words.GetCounter(*item.slot),
                                  .stop = words.GetStop(*item.slot),
                                  .epoch = item.slot->epoch,
                                  .blocks = static_cast<std::uint32_t>(item.units),
                                  .grid_x = work.grid.x,
                                  .grid_y = work.grid.y,
                                  .grid_z = work.grid.z,
                                  .base = item.claim_base};
  return IssuePreemptible(environment_.context, work, *item.claimed, claim,
                          static_cast<std::uint32_t>(blocks), stream_);
}

void Channel::ReadCounter(Item& item) {
  if (item.parts_running == 0 || !OpenBatch(item)) return;
  Status status = environment_.claims->Read(*item.slot, stream_);
  if (!status.ok()) Fail(item, std::move(status));
  AddPart({.item = &item, .group = {.end_unit = item.issued}, .detour = {}, .is_reading = true});
  CloseBatch();
}

bool Channel::EnterContained(Item& item) {
  if (item.contained == nullptr) return true;
  const Result<bool> may = item.contained->Enter();
  if (!may.ok()) Fail(item, may.status());
  return may.ok() && *may;
}

bool IsPinned(const CopyWork& copy, const PinnedRegions& pinned) {
  const std::uint64_t pitch = copy.direction == CopyWork::Direction::kHostToDevice
                                  ? copy.source_pitch_bytes
                                  : copy.destination_pitch_bytes;
  return pinned.Covers(copy.host, (copy.height - 1) * pitch + copy.width_bytes);
}

bool Channel::NeedsDetour(const Item& item) const {
  const auto* copy = std::get_if<CopyWork>(&item.work);
  if (copy == nullptr || copy->direction == CopyWork::Direction::kDeviceToDevice) return false;
  return !IsPinned(*copy, environment_.pinned);
}

std::uint64_t Channel::GroupBytesMax(const Item& item, bool has_detour) const {
  if (has_detour) return BounceBuffers::kBytes;
  if (item.header().priority >= kHighestPriority) return std::numeric_limits<std::uint64_t>::max();
  const auto* copy = std::get_if<CopyWork>(&item.work);
  const bool is_inside = copy == nullptr || copy->direction == CopyWork::Direction::kDeviceToDevice;
  return is_inside ? environment_.limits.device_group_bytes : environment_.limits.host_group_bytes;
}

bool Channel::IssueGroup(Item& item) {
  const bool has_detour = NeedsDetour(item);
  const bool is_whole = !has_detour && item.header().priority >= kHighestPriority;
  if (!is_whole && item.parts_running >= kGroupsAhead) return false;
  Part part{.item = &item, .group = {}, .detour = {}};
  if (has_detour) {
    part.detour.buffer = environment_.bounces.Take();
    if (part.detour.buffer == nullptr) return false;
  }
  if (!OpenBatch(item)) return false;
  const std::uint64_t bytes_max = GroupBytesMax(item, has_detour);
  Status status;
  if (const auto* copy = std::get_if<CopyWork>(&item.work)) {
    part.group = GroupAt(item.issued, copy->width_bytes, copy->height, bytes_max);
    if (has_detour && copy->direction == CopyWork::Direction::kHostToDevice) {
      FillDetour(*copy, part.group, part.detour);
    }
    status = IssueCopy(environment_.context, *copy, part.group, part.detour, stream_);
  } else {
    const auto& fill = std::get<FillWork>(item.work);
    part.group = GroupAt(item.issued, fill.width_bytes, fill.height, bytes_max);
    status = IssueFill(environment_.context, fill, part.group, stream_);
  }
  if (!status.ok()) {
    // Some rows may be in flight: their ends are awaited as usual, but not counted.
    Fail(item, std::move(status));
    part.group = {.end_unit = item.issued};
  }
  item.issued = part.group.end_unit;
  if (item.issued == item.units) item.is_closed = true;
  AddPart(part);
  // The end of this group frees its buffer, if any, and allows a further group to be issued.
  if (!item.is_closed || has_detour) CloseBatch();
  return true;
}

void Channel::Fail(Item& item, Status why) {
  item.is_closed = true;
  item.status = std::move(why);
}

bool Channel::OpenBatch(const Item& first) {
  if (open_parts_ > 0) return true;
  open_is_timed_ = first.header().wants_times;
  Status status = environment_.marks.Open(number_, stream_, batches_.empty(), open_is_timed_);
  if (status.ok()) return true;
  // Gives up the context, because the ends of work cannot be detected without marks.
  environment_.context.GiveUp(status);
  return false;
}

void Channel::AddPart(const Part& part) {
  ++part.item->parts_running;
  parts_.push_back(part);
  ++open_parts_;
  // More work may be added in this iteration: it forms the next batch, which runs while the end of
  // this one is detected.
  if (batches_.empty() || open_parts_ >= kBatchPartsMax) CloseBatch();
}

void Channel::MarkEnd() {
  if (batches_.size() < kMarksOut) CloseBatch();
}

void Channel::CloseBatch() {
  if (open_parts_ == 0) return;
  // The items of a batch share its time, so the times of single items are unknown.
  const bool is_timed = open_is_timed_ && open_parts_ == 1;
  batches_.push_back(std::exchange(open_parts_, 0));
  Status status = environment_.marks.Close(number_, stream_, is_timed);
  if (!status.ok()) environment_.context.GiveUp(status);
}

// ---- completion

void Channel::Advance(std::vector<std::unique_ptr<Item>>& finished) {
  while (!batches_.empty()) {
    Result<std::optional<BatchTimes>> ended = environment_.marks.Poll(number_, stream_);
    if (!ended.ok()) {
      environment_.context.GiveUp(ended.status());
      break;
    }
    if (!ended->has_value()) break;
    FinishBatch(**ended);
  }
  TakeEnded(finished);
  if (!environment_.context.is_dead()) Issue();
  TakeEnded(finished);
}

void Channel::TakeEnded(std::vector<std::unique_ptr<Item>>& finished) {
  while (!items_.empty() && items_.front()->has_ended()) {
    if (items_.front()->slot) FinishClaims(*items_.front());
    if (items_.front()->is_stopped) --stopped_;
    finished.push_back(std::move(items_.front()));
    items_.pop_front();
    // 0 if a stop has closed the front item and Issue has not yet counted it.
    if (closed_ > 0) --closed_;
  }
}

void Channel::FinishBatch(const BatchTimes& times) {
  const std::size_t count = batches_.front();
  batches_.pop_front();
  // The boundaries between the parts are unknown, so each gets an equal share.
  const auto length = times.ended - times.started;
  for (std::size_t i = 0; i < count; ++i) {
    const auto share = static_cast<std::int64_t>(i);
    const auto parts = static_cast<std::int64_t>(count);
    BatchTimes own = {.started = times.started + length * share / parts,
                      .ended = times.started + length * (share + 1) / parts};
    if (count > 1 || !times.are_exact) parts_.front().item->times_are_exact = false;
    FinishPart(parts_.front(), own);
    parts_.pop_front();
    ++ended_parts_;
  }
}

void Channel::FinishPart(const Part& part, const BatchTimes& times) {
  Item& item = *part.item;
  --item.parts_running;
  item.done = part.group.end_unit;
  if (!std::exchange(item.has_started, true)) item.started = times.started;
  item.ended = times.ended;
  if (!part.is_reading) LeaveContained(item);
  if (item.instantiated != nullptr) ReturnInstantiated(item);
  if (part.detour.buffer == nullptr) return;
  const auto& copy = std::get<CopyWork>(item.work);
  if (copy.direction == CopyWork::Direction::kDeviceToHost) {
    EmptyDetour(copy, part.group, part.detour);
  }
  environment_.bounces.Return(part.detour.buffer);
}

void Channel::LeaveContained(Item& item) {
  if (item.contained == nullptr) return;
  const auto& work = std::get<LaunchWork>(item.work);
  const auto [fault, ended_on_request] = item.contained->Leave(work.module->kernels(), work.kernel);
  if (fault.kind == FaultKind::kNone || !item.status.ok()) return;
  const std::string what = "kernel '" + ShownName(work.module->kernels()[work.kernel].name) +
                           "' ended early: " + fault.message;
  if (item.is_killed) return Fail(item, {StatusCode::kCancelled, "killed on request: " + what});
  if (ended_on_request) {
    item.fault = FaultKind::kLaunchTimeout;
    return Fail(item, {StatusCode::kKernelFault,
                       what + ", as were all kernels, because a driver call did not return"});
  }
  item.fault = fault.kind;
  Fail(item, {StatusCode::kKernelFault, what});
}

// The launch has ended, so its counter no longer changes.
void Channel::FinishClaims(Item& item) {
  const auto& work = std::get<LaunchWork>(item.work);
  environment_.claims->Return(*item.slot);
  --claimed_;
  if (item.issued == work.first_unit) item.done = work.first_unit;
  if (!item.status.ok() || item.issued == work.first_unit) return;
  if (!item.is_stopped && !item.is_killed) {
    // Each issued block has claimed a block of the grid, because otherwise the launch would have
    // ended with a fault or been stopped.
    environment_.claims->RecordClaimed(*item.slot, item.claim_base,
                                       static_cast<std::uint32_t>(item.issued));
    return;
  }
  // A kernel that is not fenced may have overwritten the counter, which only misleads its own
  // client.
  item.done = std::clamp<std::uint64_t>(environment_.claims->Claimed(*item.slot, item.claim_base),
                                        work.first_unit, item.issued);
  if (item.is_killed && item.done < item.units) {
    item.status = Status(StatusCode::kCancelled, "ended before it was complete");
  }
}

// ---- stops and failures

bool Channel::Stop(WorkId id, bool is_kill) {
  const auto found =
      std::ranges::find_if(items_, [id](const auto& item) { return item->header().id == id; });
  if (found == items_.end()) return false;
  Item& item = **found;
  if (!is_kill && item.claimed != nullptr) {
    // Stops the last item first, because an item could start as soon as the one before it is
    // stopped.
    for (auto behind = std::prev(items_.end()); behind != found; --behind) {
      if ((*behind)->header().stream == item.header().stream) StopItem(**behind, false);
    }
  }
  StopItem(item, is_kill);
  return true;
}

void Channel::StopClaims() {
  for (const std::unique_ptr<Item>& item : items_) {
    if (item->slot && !item->is_stopped && !item->is_killed) Stop(item->header().id, false);
  }
}

void Channel::StopItem(Item& item, bool is_kill) {
  if (item.is_stopped && !is_kill) return;
  if (is_kill && item.contained != nullptr && item.parts_running > 0) {
    item.contained->Stop();
    item.is_killed = true;
  }
  if (item.slot) {
    // Stops even a launch whose blocks are all in flight: those that have not started will not run.
    environment_.claims->Stop(*item.slot);
    if (!item.is_stopped && !item.is_killed) ReadCounter(item);
    item.is_closed = true;
    item.is_killed = item.is_killed || is_kill;
    SetStopped(item, !item.is_killed);
    return;
  }
  if (item.is_closed) return;
  item.is_closed = true;
  SetStopped(item, !is_kill);
  if (is_kill) item.status = Status(StatusCode::kCancelled, "ended before it was complete");
}

void Channel::SetStopped(Item& item, bool is_stopped) {
  if (item.is_stopped != is_stopped) stopped_ += is_stopped ? 1 : -1;
  item.is_stopped = is_stopped;
}

void Channel::AppendSuspects(std::vector<DeviceLoss::Suspect>& suspects) const {
  for (const Part& part : parts_) {
    if (std::holds_alternative<GraphWork>(part.item->work)) {
      suspects.push_back({.id = part.item->header().id, .what = "a graph"});
      continue;
    }
    const auto* launch = std::get_if<LaunchWork>(&part.item->work);
    if (launch == nullptr) continue;
    suspects.push_back(
        {.id = launch->id,
         .what = "kernel '" + ShownName(launch->module->kernels()[launch->kernel].name) + "'"});
  }
}

void Channel::Abandon(std::vector<std::unique_ptr<Item>>& finished) {
  for (const Part& part : parts_) {
    if (part.detour.buffer != nullptr) environment_.bounces.Return(part.detour.buffer);
  }
  ended_parts_ += parts_.size();
  parts_.clear();
  batches_.clear();
  open_parts_ = closed_ = stopped_ = claimed_ = 0;
  for (std::unique_ptr<Item>& item : items_) finished.push_back(std::move(item));
  items_.clear();
}

}  // namespace gpushared::device::cuda
