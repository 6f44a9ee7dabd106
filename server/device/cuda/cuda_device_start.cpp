// SPDX-License-Identifier: Apache-2.0
// Opens a GPU as a device: attributes, partitions, compiler and channels.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "server/device/cuda/cuda_device_impl.h"

namespace gpushared::device::cuda {
namespace {

// Cluster size that every GPU with clusters supports for every kernel.
constexpr std::uint32_t kPortableClusterBlocks = 8;

// A kernel that tests whether the driver accepts the compiler's output.
constexpr const char* kTrialKernel = "gpushared_trial";
constexpr std::string_view kTrialText =
    ".version 6.3\n.target sm_50\n.address_size 64\n.visible .entry gpushared_trial() { ret; }\n";

// Returns a warning about the number of connections that the driver is configured for; empty if the
// number suffices.
std::string FewConnections() {
  const char* const given = std::getenv(kConnectionsVariable);
  const unsigned long count = given == nullptr ? 8 : std::strtoul(given, nullptr, 10);
  if (count >= StreamTable::kConnections) return {};
  return std::string(kConnectionsVariable) + (given == nullptr ? " is not set" : " is ") +
         (given == nullptr ? "" : given) + ", " + std::to_string(StreamTable::kConnections) +
         " gives every stream a separate queue: urgent work may wait for other work";
}

Status LoadTrial(CudaContext& context, const char* doing, std::span<const std::byte> image,
                 Module* module) {
  return context.Try(doing, context.driver().ModuleLoadDataEx, module,
                     static_cast<const void*>(image.data()), 0U, static_cast<JitOption*>(nullptr),
                     static_cast<void**>(nullptr));
}

}  // namespace

Status CudaDevice::Start() {
  bound_ = std::this_thread::get_id();
  if (Status status = ReadInfo(); !status.ok()) return status;
  if (Status status = context_->LimitLocalMemory(); !status.ok()) return status;
  Result<std::shared_ptr<CudaMemory>> memory = CudaMemory::Create(context_, options_.memory_bytes);
  if (!memory.ok()) return memory.status();
  memory_ = *std::move(memory);
  info_.memory_bytes = memory_->budget()->total_bytes();
  info_.can_move_memory = memory_->can_swap();
  info_.swaps_disturb = true;
  pinned_ = std::make_shared<PinnedRegions>(context_);
  Result<std::unique_ptr<BounceBuffers>> bounces = BounceBuffers::Create(context_);
  if (!bounces.ok()) return bounces.status();
  bounces_ = *std::move(bounces);
  Result<std::unique_ptr<CompletionMarks>> marks =
      CompletionMarks::Create(options_.completion, context_, StreamTable::kChannelsTotal);
  if (!marks.ok()) return marks.status();
  marks_ = *std::move(marks);
  if (options_.warn) {
    for (const MissingFeature& missing : context_->driver().missing_features()) {
      options_.warn(options_.id + ": " + missing.why);
    }
    if (const std::string few = FewConnections(); !few.empty()) {
      options_.warn(options_.id + ": " + few);
    }
  }
  Result<std::shared_ptr<UrgentWrites>> writes = UrgentWrites::Create(context_);
  if (!writes.ok()) return writes.status();
  writes_ = *std::move(writes);
  contain_ = std::make_shared<ContainWords>(context_, writes_);
  if (context_->driver().Has(Feature::kGraphs)) {
    Result<std::shared_ptr<GraphStore>> graphs =
        GraphStore::Create(context_, options_.graph_limits, options_.note);
    if (!graphs.ok()) return graphs.status();
    graphs_ = *std::move(graphs);
  }
  if (Status status = MakeLoaders(); !status.ok()) return status;
  if (Status status = MakePartitions(); !status.ok()) return status;
  if (Status status = MakeCompiler(); !status.ok()) return status;
  return MakeChannels();
}

// Drivers since CUDA 12.4 list kernels without loading them. Older drivers load a kernel when its
// name is looked up, so that placing a module loads all of its kernels, and loaders are useless.
Status CudaDevice::MakeLoaders() {
  const Driver& driver = context_->driver();
  if (!driver.Has(Feature::kFunctionNames) || !driver.Has(Feature::kEagerLoading)) return {};
  LoadingMode mode = LoadingMode::kEager;
  Status status =
      context_->Try("asking how modules are loaded", driver.ModuleGetLoadingMode, &mode);
  if (status.ok() && mode == LoadingMode::kLazy) {
    loaders_ = std::make_shared<KernelLoaders>(context_);
  }
  return status;
}

Status CudaDevice::MakeCompiler() {
  std::unique_ptr<CodeCompiler> compiler;
  if (options_.make_compiler) compiler = options_.make_compiler();
  if (compiler == nullptr) return {};
  const Result<int> major =
      context_->NeededAttribute(DeviceAttribute::kComputeCapabilityMajor, "compute capability");
  if (!major.ok()) return major.status();
  const Result<int> minor =
      context_->NeededAttribute(DeviceAttribute::kComputeCapabilityMinor, "compute capability");
  if (!minor.ok()) return minor.status();
  const std::string architecture = "sm_" + std::to_string(*major) + std::to_string(*minor);
  Status tried = TryCode(compiler->Compile(kTrialText, architecture));
  if (context_->is_dead()) return tried;
  if (!tried.ok()) {
    if (!options_.warn) return {};
    options_.warn(options_.id + ": " + std::string(kWithoutCompiler) + ": " + tried.message());
    return {};
  }
  maker_ = std::make_shared<CodeMaker>(context_, std::move(compiler), architecture, options_.note);
  Result<std::unique_ptr<ClaimWords>> claims =
      ClaimWords::Create(context_, writes_, StreamTable::kChannelsTotal);
  if (!claims.ok()) return claims.status();
  claims_ = *std::move(claims);
  info_.preemption = Preemption::kWithinCommand;
  info_.stopping_costs = true;
  return {};
}

Status CudaDevice::TryCode(const Result<std::vector<std::byte>>& code) {
  if (!code.ok()) return code.status();
  std::vector<std::byte> image = *code;
  image.push_back(std::byte{0});  // Terminates the image if it is text.
  Module module = nullptr;
  Status status = LoadTrial(*context_, "loading what the compiler made", image, &module);
  if (!status.ok()) return status;
  trial_image_ = std::move(image);
  return context_->Try("unloading it", context_->driver().ModuleUnload, module);
}

Status CudaDevice::ReadInfo() {
  std::array<char, 256> name{};
  Status status = context_->Try("asking for the GPU's name", context_->driver().DeviceGetName,
                                name.data(), static_cast<int>(name.size()) - 1, context_->number());
  if (!status.ok()) return status;
  const auto attribute = [this](DeviceAttribute which, std::uint32_t otherwise) {
    const int value = context_->Attribute(which, static_cast<int>(otherwise));
    return static_cast<std::uint32_t>(std::max(value, 0));
  };
  std::array<char, 32> bus{};
  status = context_->Try("asking for the GPU's place", context_->driver().DeviceGetPCIBusId,
                         bus.data(), static_cast<int>(bus.size()) - 1, context_->number());
  if (!status.ok()) return status;
  info_.pci_bus = bus.data();
  using enum DeviceAttribute;
  // The inventory looks for the MPS daemon; if it is not visible, the driver still reports it.
  if (context_->Attribute(kMpsEnabled, 0) != 0) {
    return {StatusCode::kUnavailable,
            "this process became a client of MPS, which would share the GPU a second time; stop "
            "its daemon with 'echo quit | nvidia-cuda-mps-control'"};
  }
  info_.name = name.data();
  info_.id = options_.id;
  info_.kind = "cuda";
  const Result<int> multiprocessors =
      context_->NeededAttribute(kMultiprocessors, "multiprocessors");
  if (!multiprocessors.ok()) return multiprocessors.status();
  info_.multiprocessors = static_cast<std::uint32_t>(std::max(*multiprocessors, 1));
  info_.threads_per_block_max = attribute(kThreadsPerBlockMax, 1024);
  info_.block_max = {attribute(kBlockXMax, 1024), attribute(kBlockYMax, 1024),
                     attribute(kBlockZMax, 64)};
  info_.grid_max = {attribute(kGridXMax, 0x7fffffff), attribute(kGridYMax, 65535),
                    attribute(kGridZMax, 65535)};
  const std::uint32_t shared = attribute(kSharedBytesPerBlockMax, 48 * 1024);
  info_.shared_bytes_per_block_max = std::max(shared, attribute(kSharedBytesPerBlockOptIn, shared));
  if (context_->driver().Has(Feature::kLaunchAttributes)) {
    if (attribute(kClusterLaunch, 0) != 0) info_.cluster_blocks_max = kPortableClusterBlocks;
    info_.can_launch_cooperatively = attribute(kCooperativeLaunch, 0) != 0;
  }
  info_.spinning_pays = true;
  return ReadAttributes();
}

// Attributes that this driver does not report are omitted, regardless of the error that it returns:
// some of the numbers have no name, and the handling of those by drivers is undefined. Limits of
// textures and surfaces are omitted as well: kernels that use textures or surfaces are rejected,
// because such kernels could forge handles of the driver.
Status CudaDevice::ReadAttributes() {
  // Above those of CUDA 13.5; drivers reject unknown numbers.
  constexpr std::uint32_t kIdMax = 159;
  const Driver& driver = context_->driver();
  for (std::uint32_t id = 1; id <= kIdMax; ++id) {
    if (IsLimitOfTextures(static_cast<DeviceAttribute>(id))) continue;
    int value = 0;
    const Code code =
        driver.DeviceGetAttribute(&value, static_cast<DeviceAttribute>(id), context_->number());
    if (code == Code::kSuccess) info_.attributes.push_back({.id = id, .value = value});
  }
  if (!driver.Has(Feature::kInstanceUuid)) return {};
  Uuid uuid{};
  Status status =
      context_->Try("asking for the UUID", driver.DeviceGetUuid, &uuid, context_->number());
  if (status.ok()) std::memcpy(info_.uuid.data(), uuid.bytes, sizeof uuid.bytes);
  return status;
}

Status CudaDevice::MakePartitions() {
  for (std::size_t i = 0; i < partitions_.size(); ++i) {
    if (!options_.sm_limits.at(i)) continue;
    const std::uint32_t asked = options_.sm_limits.at(i)->Of(info_.multiprocessors);
    Result<std::unique_ptr<SmPartition>> partition = SmPartition::Create(context_, asked);
    if (!partition.ok()) return partition.status();
    partitions_.at(i) = *std::move(partition);
    info_.sm_grants.push_back(
        {.of_class = i, .asked = asked, .granted = partitions_.at(i)->multiprocessors()});
  }
  return {};
}

Result<Stream> CudaDevice::MakeStream(std::size_t level, int priority) {
  const auto& partition = partitions_.at(kDeviceClasses - 1 - level);
  if (partition != nullptr) return partition->MakeStream(priority);
  Stream stream = nullptr;
  Status status = context_->Try("making a stream", context_->driver().StreamCreateWithPriority,
                                &stream, kStreamNonBlocking, priority);
  if (!status.ok()) return status;
  return stream;
}

// Checks that marks, and kernels of the primary context, work on the streams of a partition. A
// later failure of a mark would look like the death of the context, and a later failure of a launch
// like a client's error.
Status CudaDevice::TryParts(std::span<const PartStream> streams) {
  if (trial_image_.empty()) {
    std::ranges::copy(std::as_bytes(std::span(kTrialText)), std::back_inserter(trial_image_));
    trial_image_.push_back(std::byte{0});
  }
  const Driver& driver = context_->driver();
  Module module = nullptr;
  Function trial = nullptr;
  Status status = LoadTrial(*context_, "loading a trial kernel", trial_image_, &module);
  if (status.ok()) {
    status = context_->Try("finding a trial kernel", driver.ModuleGetFunction, &trial, module,
                           kTrialKernel);
  }
  for (const PartStream& part : streams) {
    if (status.ok()) status = TryPart(part, trial);
  }
  if (module != nullptr && !context_->is_dead()) {
    // The launched work must end before its code is unloaded; nothing else is running yet.
    if (!status.ok()) (void)context_->Call(driver.CtxSynchronize);
    Status unloaded = context_->Try("unloading a trial kernel", driver.ModuleUnload, module);
    if (status.ok()) status = std::move(unloaded);
  }
  if (status.ok()) return status;
  return {status.code(), "option sm-limit rejected: " + status.message()};
}

Status CudaDevice::TryPart(const PartStream& part, Function trial) {
  const Driver& driver = context_->driver();
  Status status = marks_->Open(part.number, part.stream, true, true);
  if (status.ok()) {
    status = context_->Try("a launch on a part of the multiprocessors", driver.LaunchKernel, trial,
                           1U, 1U, 1U, 1U, 1U, 1U, 0U, part.stream, static_cast<void**>(nullptr),
                           static_cast<void**>(nullptr));
  }
  if (status.ok()) status = marks_->Close(part.number, part.stream, true);
  if (status.ok()) {
    status = context_->Try("waiting for a part of the multiprocessors", driver.StreamSynchronize,
                           part.stream);
  }
  if (!status.ok()) return status;
  const Result<std::optional<BatchTimes>> ended = marks_->Poll(part.number, part.stream);
  if (!ended.ok() || ended->has_value()) return ended.status();
  return {StatusCode::kUnsupported, "a mark on a stream that is idle was not reached"};
}

Status CudaDevice::MakeChannels() {
  const Driver& driver = context_->driver();
  int least = 0;
  int greatest = 0;  // Smaller numbers are more urgent.
  Status status =
      context_->Try("asking for priorities", driver.CtxGetStreamPriorityRange, &least, &greatest);
  if (!status.ok()) return status;
  const std::array<int, 3> priorities = {least, (least + greatest) / 2, greatest};
  environment_.emplace(ChannelEnvironment{.context = *context_,
                                          .marks = *marks_,
                                          .bounces = *bounces_,
                                          .pinned = *pinned_,
                                          .claims = claims_.get(),
                                          .graphs = graphs_.get(),
                                          .limits = options_.limits});
  std::vector<PartStream> of_parts;
  for (std::size_t i = 0; i < StreamTable::kChannelsTotal; ++i) {
    const std::size_t level = StreamTable::GetLevel(i);
    const Result<Stream> stream = MakeStream(level, priorities.at(level));
    if (!stream.ok()) return stream.status();
    const auto& partition = partitions_.at(kDeviceClasses - 1 - level);
    const std::uint32_t multiprocessors =
        partition != nullptr ? partition->multiprocessors() : info_.multiprocessors;
    channels_.push_back(std::make_unique<Channel>(*environment_, i, *stream, multiprocessors,
                                                  partition != nullptr));
    if (partition == nullptr) continue;
    if (status = marks_->SetContext(i, *stream, partition->context()); !status.ok()) return status;
    of_parts.push_back({.number = i, .stream = *stream});
  }
  return of_parts.empty() ? Status() : TryParts(of_parts);
}

}  // namespace gpushared::device::cuda
