// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "server/device/cuda/claim_words.h"
#include "server/device/cuda/code_maker.h"
#include "server/device/cuda/contain_words.h"
#include "server/device/cuda/cuda_context.h"
#include "server/device/cuda/cuda_memory.h"
#include "server/device/cuda/cuda_module.h"
#include "server/device/cuda/graph_store.h"
#include "server/device/cuda/host_memory.h"
#include "server/device/cuda/sm_partition.h"
#include "server/device/cuda/stream_table.h"
#include "server/device/cuda/urgent_writes.h"
#include "server/device/work_checks.h"

namespace gpushared::device::cuda {
namespace {

// Cluster size that every GPU with clusters allows every kernel.
constexpr std::uint32_t kPortableClusterBlocks = 8;

// A stop keeps blocks from beginning; where most have begun, it saves nothing.
constexpr std::uint64_t kWavesWorthStopping = 2;

// Whether a compiler and a driver understand each other is seen with this.
constexpr const char* kTrialKernel = "gpushared_trial";
constexpr std::string_view kTrialText =
    ".version 6.3\n.target sm_50\n.address_size 64\n.visible .entry gpushared_trial() { ret; }\n";

// Read by the driver when it is initialised; without it there are 8.
constexpr const char* kConnectionsVariable = "CUDA_DEVICE_MAX_CONNECTIONS";

// What is to be said of the number of connections that the driver was told to make; empty: nothing.
std::string FewConnections() {
  const char* const given = std::getenv(kConnectionsVariable);
  const unsigned long count = given == nullptr ? 8 : std::strtoul(given, nullptr, 10);
  if (count >= StreamTable::kConnections) return {};
  return std::string(kConnectionsVariable) + (given == nullptr ? " is not set" : " is ") +
         (given == nullptr ? "" : given) + ", " + std::to_string(StreamTable::kConnections) +
         " is what every stream needs to have a queue of its own: urgent work may wait behind "
         "other "
         "work";
}

Status LoadTrial(CudaContext& context, const char* doing, std::span<const std::byte> image,
                 Module* module) {
  return context.Try(doing, context.driver().ModuleLoadDataEx, module,
                     static_cast<const void*>(image.data()), 0U, static_cast<JitOption*>(nullptr),
                     static_cast<void**>(nullptr));
}

class CudaDevice : public Device {
 public:
  CudaDevice(std::shared_ptr<CudaContext> context, CudaDeviceOptions options, WakeFunction wake)
      : context_(std::move(context)), options_(std::move(options)), wake_(std::move(wake)) {}
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override = default;

  // On the thread for which the context was opened.
  Status Start();

  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<Space>> CreateSpace(const SpaceOptions& options) override;
  std::uint64_t free_memory_bytes() const override { return memory_->budget()->free_bytes(); }
  Result<std::unique_ptr<PinnedMemory>> Pin(std::span<std::byte> memory) override {
    return PinnedRegions::Pin(pinned_, memory);
  }

  void Submit(const LaunchWork& work) override {
    SubmitChecked(work, work.grid.Count(), CheckLaunchHere(work));
  }
  static const CudaSpace& SpaceOf(const WorkHeader& work) {
    return static_cast<const CudaSpace&>(*work.space);
  }
  bool CanStop(const LaunchWork& work, std::chrono::nanoseconds expected) override;
  bool CanKill(const LaunchWork& work) const override {
    return static_cast<const CudaModule*>(work.module)->contained() != nullptr;
  }
  void Submit(const CopyWork& work) override {
    SubmitChecked(work, CopyUnits(work.width_bytes, work.height),
                  CheckCopy(work, SpaceOf(work).mapped(), SpaceOf(work).variables()));
  }
  void Submit(const FillWork& work) override {
    SubmitChecked(work, CopyUnits(work.width_bytes, work.height),
                  CheckFill(work, SpaceOf(work).mapped(), SpaceOf(work).variables()));
  }
  bool TakesNode(const GraphNode& node) const override;
  void SubmitGraph(const GraphWork& work) override;
  void RequestStop(WorkId id) override { Stop(id, false); }
  void RequestKill(WorkId id) override { Stop(id, true); }
  std::size_t TakeCompletions(std::span<Completion> out) override;
  bool must_be_polled() const override {
    return in_channels_ > 0 || (context_->is_dead() && !loss_);
  }
  const DeviceLoss* loss() const override { return loss_ ? &*loss_ : nullptr; }

 private:
  Status ReadInfo();
  Status ReadAttributes();
  Status MakePartitions();
  Status MakeCompiler();
  Status TryCode(const Result<std::vector<std::byte>>& code);
  Status MakeChannels();
  Result<Stream> MakeStream(std::size_t level, int priority);
  // A channel's stream on a part of the multiprocessors.
  struct PartStream {
    std::size_t number = 0;
    Stream stream = nullptr;
  };
  Status TryParts(std::span<const PartStream> streams);
  Status TryPart(const PartStream& part, Function trial);
  // The level of channels that the work may use.
  std::uint8_t LevelOf(const WorkHeader& header) const;
  Status CheckLaunchHere(const LaunchWork& work) const;
  // That it could run as; null when it runs as the client wrote it.
  const ClaimedKernel* ClaimedFormOf(const LaunchWork& work) const;
  std::uint32_t MultiprocessorsFor(const WorkHeader& header) const;
  // 0 where the driver does not say.
  std::uint64_t BlocksAtOnce(const LaunchWork& work, const ClaimedKernel& form);
  void SubmitChecked(decltype(Item::work) work, std::uint64_t units, Status refused);
  Status CheckNode(const GraphWork& graph, const GraphNode& node) const;
  void Stop(WorkId id, bool is_kill);
  // The context is current on the thread that submits and polls; false when it cannot be.
  bool Bind();
  void Poll();
  void Lose();
  void Complete(const Item& item);
  std::unique_ptr<Item> NewItem();
  void Recycle(std::unique_ptr<Item> item);

  const std::shared_ptr<CudaContext> context_;
  const CudaDeviceOptions options_;
  const WakeFunction wake_;
  DeviceInfo info_;
  std::shared_ptr<CudaMemory> memory_;
  std::shared_ptr<PinnedRegions> pinned_;
  std::unique_ptr<BounceBuffers> bounces_;
  std::unique_ptr<CompletionMarks> marks_;
  // Compiled, where there is a compiler that the driver understands; else its text.
  std::vector<std::byte> trial_image_;
  std::shared_ptr<CodeMaker> maker_;  // Null where nothing is compiled outside; as the next.
  std::unique_ptr<ClaimWords> claims_;
  std::shared_ptr<GraphStore> graphs_;  // Null where the driver has no graphs.
  std::shared_ptr<UrgentWrites> writes_;
  std::shared_ptr<ContainWords> contain_;
  std::optional<ChannelEnvironment> environment_;
  // By class; null: all multiprocessors.
  std::array<std::unique_ptr<SmPartition>, kDeviceClasses> partitions_;
  std::vector<std::unique_ptr<Channel>> channels_;
  StreamTable streams_;

  std::thread::id bound_;                        // On which the context is known to be current.
  std::size_t in_channels_ = 0;                  // Works.
  std::vector<std::unique_ptr<Item>> finished_;  // Empty between calls.
  std::vector<std::unique_ptr<Item>> spare_;
  std::deque<Completion> completions_;
  bool wakes_ = false;  // The next completion calls the wake function.
  std::optional<DeviceLoss> loss_;
};

// ---- start

Status CudaDevice::Start() {
  bound_ = std::this_thread::get_id();
  if (Status status = ReadInfo(); !status.ok()) return status;
  if (Status status = context_->TakeLocalMemory(); !status.ok()) return status;
  Result<std::shared_ptr<CudaMemory>> memory = CudaMemory::Create(context_, options_.memory_bytes);
  if (!memory.ok()) return memory.status();
  memory_ = *std::move(memory);
  info_.memory_bytes = memory_->budget()->total_bytes();
  info_.can_move_memory = memory_->can_move();
  info_.moves_disturb = true;
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
        GraphStore::Create(context_, options_.graph_limits, options_.note, options_.await_quiet);
    if (!graphs.ok()) return graphs.status();
    graphs_ = *std::move(graphs);
  }
  if (Status status = MakePartitions(); !status.ok()) return status;
  if (Status status = MakeCompiler(); !status.ok()) return status;
  return MakeChannels();
}

Status CudaDevice::MakeCompiler() {
  std::unique_ptr<CodeCompiler> compiler;
  if (options_.make_compiler) compiler = options_.make_compiler();
  if (compiler == nullptr) return {};
  const std::string architecture =
      "sm_" + std::to_string(context_->Attribute(DeviceAttribute::kComputeCapabilityMajor, 0)) +
      std::to_string(context_->Attribute(DeviceAttribute::kComputeCapabilityMinor, 0));
  Status tried = TryCode(compiler->Compile(kTrialText, architecture));
  if (context_->is_dead()) return tried;
  if (!tried.ok()) {
    if (!options_.warn) return {};
    options_.warn(options_.id + ": " + std::string(kWithoutCompiler) + ": " + tried.message());
    return {};
  }
  maker_ = std::make_shared<CodeMaker>(std::move(compiler), architecture, options_.note,
                                       options_.await_quiet);
  Result<std::unique_ptr<ClaimWords>> claims =
      ClaimWords::Create(context_, writes_, StreamTable::kChannelsTotal);
  if (!claims.ok()) return claims.status();
  claims_ = *std::move(claims);
  info_.preemption = Preemption::kWithinCommand;
  info_.stopping_costs = true;
  info_.chains_stops = true;
  return {};
}

Status CudaDevice::TryCode(const Result<std::vector<std::byte>>& code) {
  if (!code.ok()) return code.status();
  std::vector<std::byte> image = *code;
  image.push_back(std::byte{0});  // Where it is text, that ends it.
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
  // The inventory looks for the daemon; where it cannot see it, the driver still knows.
  if (context_->Attribute(kMpsEnabled, 0) != 0) {
    return {StatusCode::kUnavailable,
            "this process became a client of MPS, which would share the GPU behind our back; stop "
            "its daemon with 'echo quit | nvidia-cuda-mps-control'"};
  }
  info_.name = name.data();
  info_.id = options_.id;
  info_.kind = "cuda";
  info_.multiprocessors = attribute(kMultiprocessors, 1);
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
  info_.copy_preemption = Preemption::kWithinCommand;
  info_.runs_graphs = true;
  info_.spinning_pays = true;
  return ReadAttributes();
}

// Attributes that this driver does not know are left out. So are the limits of textures and
// surfaces: kernels that use these are refused, since they could make up handles of the driver's.
Status CudaDevice::ReadAttributes() {
  // Beyond those of CUDA 13.5; drivers refuse numbers that they do not know.
  constexpr std::uint32_t kIdMax = 159;
  const Driver& driver = context_->driver();
  for (std::uint32_t id = 1; id <= kIdMax; ++id) {
    if (IsLimitOfTextures(static_cast<DeviceAttribute>(id))) continue;
    int value = 0;
    const Code code = context_->Call(driver.DeviceGetAttribute, &value,
                                     static_cast<DeviceAttribute>(id), context_->number());
    if (code == Code::kSuccess) {
      info_.attributes.push_back({.id = id, .value = value});
    } else if (code != Code::kInvalidValue) {
      return context_->Explain("asking for an attribute", driver.DeviceGetAttribute.name(), code);
    }
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

// With limits a class has channels of its own, whatever priority the policy gives its work.
std::uint8_t CudaDevice::LevelOf(const WorkHeader& header) const {
  if (info_.sm_grants.empty()) return header.priority;
  const std::size_t of_class = std::min<std::size_t>(header.of_class, kDeviceClasses - 1);
  return static_cast<std::uint8_t>(kDeviceClasses - 1 - of_class);
}

// That marks and kernels of the whole GPU's context work on a part's streams is seen here: later a
// mark that fails would look like the death of the context, and a launch like a client's mistake.
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
    // What was launched ends before its code goes; nothing else runs yet.
    if (!status.ok()) (void)context_->Call(driver.CtxSynchronize);
    Status unloaded = context_->Try("unloading a trial kernel", driver.ModuleUnload, module);
    if (status.ok()) status = std::move(unloaded);
  }
  if (status.ok()) return status;
  return {status.code(), "option sm-limit refused: " + status.message()};
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
  int greatest = 0;  // The smaller number is the more urgent one.
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
    const std::size_t level = StreamTable::LevelOf(i);
    const Result<Stream> stream = MakeStream(level, priorities.at(level));
    if (!stream.ok()) return stream.status();
    const auto& partition = partitions_.at(kDeviceClasses - 1 - level);
    const std::uint32_t multiprocessors =
        partition != nullptr ? partition->multiprocessors() : info_.multiprocessors;
    channels_.push_back(std::make_unique<Channel>(*environment_, i, *stream, multiprocessors,
                                                  partition != nullptr));
    if (partition != nullptr) of_parts.push_back({.number = i, .stream = *stream});
  }
  return of_parts.empty() ? Status() : TryParts(of_parts);
}

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
                                                .graphs = graphs_}));
}

// ---- work

Status CudaDevice::CheckLaunchHere(const LaunchWork& work) const {
  Status status = CheckLaunch(work, info_);
  if (status.ok() && work.first_unit != 0 && work.first_unit < work.grid.Count() &&
      ClaimedFormOf(work) == nullptr) {
    return {StatusCode::kInvalidArgument, "launch refused: it resumes at block " +
                                              std::to_string(work.first_unit) +
                                              ", this device runs this launch whole"};
  }
  return status;
}

const ClaimedKernel* CudaDevice::ClaimedFormOf(const LaunchWork& work) const {
  // A launch that was stopped once goes on in its claimed form.
  if (claims_ == nullptr || (!work.may_be_stopped && work.first_unit == 0)) return nullptr;
  const ClaimedKernel* const form =
      static_cast<const CudaModule*>(work.module)->claimed(work.kernel);
  return form != nullptr && form->Takes(work) ? form : nullptr;
}

std::uint32_t CudaDevice::MultiprocessorsFor(const WorkHeader& header) const {
  const std::size_t of_class = std::min<std::size_t>(header.of_class, kDeviceClasses - 1);
  const auto& partition = partitions_.at(of_class);
  return partition != nullptr ? partition->multiprocessors() : info_.multiprocessors;
}

std::uint64_t CudaDevice::BlocksAtOnce(const LaunchWork& work, const ClaimedKernel& form) {
  int blocks = 0;
  const Code code =
      context_->Call(context_->driver().OccupancyMaxActiveBlocksPerMultiprocessor, &blocks,
                     form.function, static_cast<int>(work.block.Count()),
                     static_cast<std::size_t>(work.dynamic_shared_bytes) + ptx::kClaimSharedBytes);
  if (code != Code::kSuccess || blocks <= 0) return 0;
  return static_cast<std::uint64_t>(blocks) * MultiprocessorsFor(work);
}

bool CudaDevice::CanStop(const LaunchWork& work, std::chrono::nanoseconds expected) {
  const ClaimedKernel* const form = ClaimedFormOf(work);
  if (form == nullptr || !Bind()) return false;
  const std::uint64_t at_once = BlocksAtOnce(work, *form);
  const std::uint64_t total = work.grid.Count();
  // All blocks of a single wave have begun before anybody could stop it.
  if (at_once == 0 || total < kWavesWorthStopping * at_once) return false;
  // So long each block takes, with as many others beside it as there is room for.
  const auto block = expected * std::min(at_once, total) / total;
  return block >= options_.limits.claim_time * kClaimWorth;
}

// Contained launches have words around them, and copies of other memory go through buffers, in
// groups, as large ones do.
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
            "graph refused: a contained launch, or a copy that is large or of other memory, is "
            "no node of it"};
  }
  const CudaSpace& space = SpaceOf(graph);
  if (const auto* const launch = std::get_if<LaunchWork>(&node)) return CheckLaunch(*launch, info_);
  if (const auto* const copy = std::get_if<CopyWork>(&node)) {
    return CheckCopy(*copy, space.mapped(), space.variables());
  }
  return CheckFill(std::get<FillWork>(node), space.mapped(), space.variables());
}

void CudaDevice::SubmitGraph(const GraphWork& work) {
  Status refused;
  for (const GraphNode* const node : work.nodes) {
    refused = CheckNode(work, *node);
    if (!refused.ok()) break;
  }
  SubmitChecked(work, work.nodes.size(), std::move(refused));
}

void CudaDevice::SubmitChecked(decltype(Item::work) work, std::uint64_t units, Status refused) {
  std::unique_ptr<Item> item = NewItem();
  item->work = std::move(work);
  item->units = units;
  if (const auto* launch = std::get_if<LaunchWork>(&item->work);
      launch != nullptr && refused.ok()) {
    item->claimed = ClaimedFormOf(*launch);
    item->contained = static_cast<const CudaModule*>(launch->module)->contained();
  }
  const WorkHeader& header = item->header();
  if (refused.ok() && !SpaceOf(header).is_whole()) {
    refused = Status(StatusCode::kInternal, "work refused: its client's memory is moved out");
  }
  if (refused.ok() && header.first_unit > units) {
    refused = Status(StatusCode::kInvalidArgument, "work refused: it resumes at unit " +
                                                       std::to_string(header.first_unit) + " of " +
                                                       std::to_string(units));
  }
  item->issued = item->done = header.first_unit;
  item->is_closed = !refused.ok();
  item->status = std::move(refused);
  const bool is_bound = Bind();
  if (is_bound && item->claimed != nullptr) {
    const std::uint64_t at_once = BlocksAtOnce(std::get<LaunchWork>(item->work), *item->claimed);
    const std::uint64_t wave = std::max<std::uint64_t>(at_once, 1);
    const ChannelLimits& limits = options_.limits;
    item->claim_group_blocks = std::min(limits.claim_group_blocks, wave * limits.claim_group_waves);
    item->claim_ahead_blocks = std::min(limits.claim_group_blocks, wave * limits.claim_ahead_waves);
  }
  if (!is_bound) {
    // Nothing more can run: it ends like what is under way.
    item->status = context_->death();
    Complete(*item);
    return Recycle(std::move(item));
  }
  ++in_channels_;
  // Also what is refused: it ends behind the work ahead of it.
  channels_[streams_.Enter(header.stream, LevelOf(header))]->Add(std::move(item));
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
  // The most urgent first.
  for (auto channel = channels_.rbegin(); channel != channels_.rend(); ++channel) {
    if ((*channel)->empty()) continue;
    (*channel)->Advance(finished_);
    (*channel)->MarkEnd();
  }
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

}  // namespace

Result<std::unique_ptr<Device>> CreateCudaDevice(std::shared_ptr<const Driver> driver,
                                                 CudaDeviceOptions options, WakeFunction wake) {
  Result<std::shared_ptr<CudaContext>> context =
      CudaContext::Open(std::move(driver), options.ordinal, wake);
  const auto refuse = [id = options.id](const Status& why) {
    return Status(why.code(), "device " + id + " refused: " + why.message());
  };
  if (!context.ok()) return refuse(context.status());
  auto device =
      std::make_unique<CudaDevice>(*std::move(context), std::move(options), std::move(wake));
  if (Status status = device->Start(); !status.ok()) return refuse(status);
  return std::unique_ptr<Device>(std::move(device));
}

void PrepareEnvironment() {
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  ::setenv(kConnectionsVariable, std::to_string(StreamTable::kConnections).c_str(), 0);
}

}  // namespace gpushared::device::cuda
