// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <ranges>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "server/device/cuda/cuda_device_impl.h"
#include "server/device/reach.h"

namespace gpushared::device::cuda {
namespace {

// A stop only prevents blocks from starting, so it is useless if most have started.
constexpr std::uint64_t kWavesWorthStopping = 2;

struct AccessesResidentMemory {
  const CudaSpace& space;

  bool operator()(const GraphWork& graph) const {
    if (graph.reach != nullptr) return space.IsResident(*graph.reach);
    return std::ranges::all_of(graph.nodes,
                               [this](const GraphNode* node) { return std::visit(*this, *node); });
  }
  bool operator()(const auto& work) const { return space.IsResident(GetReach(work)); }
};

}  // namespace

Result<std::unique_ptr<Space>> CudaDevice::CreateSpace(const SpaceOptions& options) {
  if (context_->is_dead()) return context_->death();
  if (Status status = context_->Bind(); !status.ok()) return status;
  Result<std::unique_ptr<CudaRange>> range = CudaRange::Reserve(
      memory_, options.quota_bytes, options.isolation, options.left_free_bytes, options.store);
  if (!range.ok()) return range.status();
  return std::unique_ptr<Space>(
      std::make_unique<CudaSpace>(context_, *std::move(range),
                                  ModuleLoading{.isolation = options.isolation,
                                                .maker = maker_,
                                                .driver_may_compile = options.driver_may_compile,
                                                .words = contain_,
                                                .graphs = graphs_,
                                                .loaders = loaders_}));
}

// ---- work

// With SM limits, a class has separate channels, regardless of the priority of its work.
std::uint8_t CudaDevice::GetLevel(const WorkHeader& header) const {
  if (info_.sm_grants.empty()) return header.priority;
  const std::size_t of_class = std::min<std::size_t>(header.of_class, kDeviceClasses - 1);
  return static_cast<std::uint8_t>(kDeviceClasses - 1 - of_class);
}

Status CudaDevice::CheckLaunchHere(const LaunchWork& work) const {
  Status status = CheckLaunch(work, info_);
  if (status.ok() && work.first_unit != 0 && work.first_unit < work.grid.Count() &&
      PreemptibleFormFor(work) == nullptr) {
    return {StatusCode::kInvalidArgument, "launch rejected: it resumes at block " +
                                              std::to_string(work.first_unit) +
                                              ", this device runs this launch whole"};
  }
  return status;
}

const PreemptibleKernel* CudaDevice::PreemptibleFormFor(const LaunchWork& work) const {
  // A launch that was stopped once continues in its preemptible form.
  if (claims_ == nullptr || (!work.may_be_stopped && work.first_unit == 0)) return nullptr;
  const PreemptibleKernel* const form =
      static_cast<const CudaModule*>(work.module)->claimed(work.kernel);
  return form != nullptr && form->Takes(work) ? form : nullptr;
}

std::uint32_t CudaDevice::MultiprocessorsFor(const WorkHeader& header) const {
  const std::size_t of_class = std::min<std::size_t>(header.of_class, kDeviceClasses - 1);
  const auto& partition = partitions_.at(of_class);
  return partition != nullptr ? partition->multiprocessors() : info_.multiprocessors;
}

std::uint64_t CudaDevice::BlocksAtOnce(const LaunchWork& work, const PreemptibleKernel& form) {
  const std::uint64_t threads = work.block.Count();
  const std::uint64_t shared_bytes =
      std::uint64_t{work.dynamic_shared_bytes} + ptx::kClaimSharedBytes;
  std::uint32_t blocks = form.occupancy.Find(threads, shared_bytes);
  if (blocks == 0) {
    int asked = 0;
    const Code code =
        context_->Call(context_->driver().OccupancyMaxActiveBlocksPerMultiprocessor, &asked,
                       form.function, static_cast<int>(threads), std::size_t{shared_bytes});
    if (code != Code::kSuccess || asked <= 0) return 0;
    blocks = static_cast<std::uint32_t>(asked);
    form.occupancy.Remember(threads, shared_bytes, blocks);
  }
  return std::uint64_t{blocks} * MultiprocessorsFor(work);
}

bool CudaDevice::CanStop(const LaunchWork& work, std::chrono::nanoseconds expected) {
  const PreemptibleKernel* const form = PreemptibleFormFor(work);
  if (form == nullptr || !Bind()) return false;
  const std::uint64_t at_once = BlocksAtOnce(work, *form);
  const std::uint64_t total = work.grid.Count();
  // All blocks of a single wave have started before a stop could arrive.
  if (at_once == 0 || total < kWavesWorthStopping * at_once) return false;
  // Duration of each block if as many blocks as fit run at the same time.
  const auto block = expected * std::min(at_once, total) / total;
  return block >= options_.limits.claim_time * kClaimWorth;
}

// Whether the driver can run the node as part of a graph. Three kinds of work are submitted alone:
//   * contained launches, because their module's stop word and fault record are handled before and
//     after each;
//   * copies of unregistered memory, because they pass through bounce buffers in groups;
//   * large copies and fills, because they are issued in groups as well.
bool CudaDevice::TakesNode(const GraphNode& node) const {
  if (const auto* const launch = std::get_if<LaunchWork>(&node)) {
    return static_cast<const CudaModule*>(launch->module)->contained() == nullptr;
  }
  const auto* const copy = std::get_if<CopyWork>(&node);
  if (copy == nullptr) {
    const auto& fill = std::get<FillWork>(node);
    return fill.width_bytes * fill.height <= options_.limits.device_group_bytes;
  }
  const std::uint64_t bytes = copy->width_bytes * copy->height;
  if (copy->direction == CopyWork::Direction::kDeviceToDevice) {
    return bytes <= options_.limits.device_group_bytes;
  }
  return bytes <= options_.limits.host_group_bytes && IsPinned(*copy, *pinned_);
}

Status CudaDevice::CheckNode(const GraphWork& graph, const GraphNode& node) const {
  if (!TakesNode(node)) {
    return {StatusCode::kInvalidArgument,
            "graph rejected: a contained launch, or a copy that is large or uses unregistered "
            "memory, cannot be a node"};
  }
  const CudaSpace& space = GetSpace(graph);
  if (const auto* const launch = std::get_if<LaunchWork>(&node)) return CheckLaunch(*launch, info_);
  if (const auto* const copy = std::get_if<CopyWork>(&node)) {
    return CheckCopy(*copy, space.mapped(), space.variables());
  }
  return CheckFill(std::get<FillWork>(node), space.mapped(), space.variables());
}

void CudaDevice::SubmitGraph(const GraphWork& work) {
  Status rejected;
  const auto check = [&](std::size_t node) {
    rejected = CheckNode(work, *work.nodes[node]);
    return rejected.ok();
  };
  unknown_nodes_.clear();
  if (graphs_ != nullptr && graphs_->FindUnknown(work, unknown_nodes_)) {
    (void)std::ranges::all_of(unknown_nodes_, check);
  } else {
    (void)std::ranges::all_of(std::views::iota(std::size_t{0}, work.nodes.size()), check);
  }
  SubmitChecked(work, work.nodes.size(), std::move(rejected));
}

void CudaDevice::SubmitChecked(decltype(Item::work) work, std::uint64_t units, Status rejected) {
  std::unique_ptr<Item> item = NewItem();
  item->work = std::move(work);
  item->units = units;
  if (const auto* launch = std::get_if<LaunchWork>(&item->work);
      launch != nullptr && rejected.ok()) {
    item->claimed = PreemptibleFormFor(*launch);
    item->contained = static_cast<const CudaModule*>(launch->module)->contained();
  }
  const WorkHeader& header = item->header();
  const CudaSpace& space = GetSpace(header);
  const bool is_whole = space.IsResident(Reach::Everything());
  if (rejected.ok() && !is_whole && !std::visit(AccessesResidentMemory{space}, item->work)) {
    rejected = Status(StatusCode::kInternal, "work rejected: its client's memory is swapped out");
  }
  if (rejected.ok() && header.first_unit > units) {
    rejected = Status(StatusCode::kInvalidArgument, "work rejected: it resumes at unit " +
                                                        std::to_string(header.first_unit) + " of " +
                                                        std::to_string(units));
  }
  item->issued = item->done = header.first_unit;
  item->is_closed = !rejected.ok();
  item->status = std::move(rejected);
  const bool is_bound = Bind();
  if (is_bound && item->claimed != nullptr) {
    const std::uint64_t at_once = BlocksAtOnce(std::get<LaunchWork>(item->work), *item->claimed);
    const std::uint64_t wave = std::max<std::uint64_t>(at_once, 1);
    const ChannelLimits& limits = options_.limits;
    item->claim_group_blocks = std::min(limits.claim_group_blocks, wave * limits.claim_group_waves);
    item->claim_ahead_blocks = std::min(limits.claim_group_blocks, wave * limits.claim_ahead_waves);
  }
  if (!is_bound) {
    // No further work can run, so the item ends with the reason why the context
    // died, like all work in flight.
    item->status = context_->death();
    Complete(*item);
    return Recycle(std::move(item));
  }
  ++in_channels_;
  // Rejected work is added as well, because it must complete after the work before it.
  channels_[streams_.Enter(header.stream, GetLevel(header))]->Add(std::move(item));
}

void CudaDevice::Stop(WorkId id, bool is_kill) {
  for (const std::unique_ptr<Channel>& channel : channels_) {
    if (channel->Stop(id, is_kill)) return;
  }
}

bool CudaDevice::Bind() {
  if (context_->is_dead()) return false;
  if (bound_ == std::this_thread::get_id()) return true;
  if (Status status = context_->Bind(); !status.ok()) {
    context_->GiveUp(status);
    return false;
  }
  bound_ = std::this_thread::get_id();
  return true;
}

// ---- completions

std::size_t CudaDevice::TakeCompletions(std::span<Completion> out) {
  wakes_ = false;
  if (in_channels_ > 0 && Bind()) Poll();
  if (context_->is_dead() && !loss_) Lose();
  const std::size_t count = std::min(out.size(), completions_.size());
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = std::move(completions_.front());
    completions_.pop_front();
  }
  wakes_ = count < out.size();
  return count;
}

void CudaDevice::Poll() {
  // Advances the most urgent channels first.
  for (auto channel = channels_.rbegin(); channel != channels_.rend(); ++channel) {
    if ((*channel)->empty()) continue;
    (*channel)->Advance(finished_);
    (*channel)->MarkEnd();
  }
  drain_.Review();
  for (std::unique_ptr<Item>& item : finished_) {
    streams_.Leave(item->header().stream);
    --in_channels_;
    Complete(*item);
    Recycle(std::move(item));
  }
  finished_.clear();
}

void CudaDevice::Lose() {
  loss_.emplace();
  loss_->why = context_->death();
  for (const std::unique_ptr<Channel>& channel : channels_) {
    channel->AppendSuspects(loss_->suspects);
  }
  for (const std::unique_ptr<Channel>& channel : channels_) channel->Abandon(finished_);
  for (std::unique_ptr<Item>& item : finished_) {
    if (item->status.ok()) item->status = loss_->why;
    streams_.Leave(item->header().stream);
    --in_channels_;
    Complete(*item);
  }
  finished_.clear();
}

void CudaDevice::Complete(const Item& item) {
  Completion completion;
  completion.id = item.header().id;
  completion.status = item.status;
  completion.fault = item.fault;
  completion.units_done = item.done;
  completion.stopped = item.is_stopped && item.done < item.units;
  completion.started = item.started;
  completion.ended = item.ended;
  completion.times_are_exact = item.times_are_exact;
  if (!item.has_started) completion.started = completion.ended = DeviceClock::now();
  completions_.push_back(std::move(completion));
  if (std::exchange(wakes_, false) && wake_) wake_();
}

std::unique_ptr<Item> CudaDevice::NewItem() {
  if (spare_.empty()) return std::make_unique<Item>();
  std::unique_ptr<Item> item = std::move(spare_.back());
  spare_.pop_back();
  return item;
}

void CudaDevice::Recycle(std::unique_ptr<Item> item) {
  *item = Item();
  spare_.push_back(std::move(item));
}

Result<std::unique_ptr<Device>> CreateCudaDevice(std::shared_ptr<const Driver> driver,
                                                 CudaDeviceOptions options, WakeFunction wake) {
  Result<std::shared_ptr<CudaContext>> context =
      CudaContext::Open(std::move(driver), options.ordinal, wake, options.await_quiet);
  const auto reject = [id = options.id](const Status& why) {
    return Status(why.code(), "device " + id + " rejected: " + why.message());
  };
  if (!context.ok()) return reject(context.status());
  auto device =
      std::make_unique<CudaDevice>(*std::move(context), std::move(options), std::move(wake));
  if (Status status = device->Start(); !status.ok()) return reject(status);
  return std::unique_ptr<Device>(std::move(device));
}

void PrepareEnvironment() {
  ::setenv("CUDA_MODULE_LOADING", "LAZY", 0);
  ::setenv(kConnectionsVariable, std::to_string(StreamTable::kConnections).c_str(), 0);
}

}  // namespace gpushared::device::cuda
