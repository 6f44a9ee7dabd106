// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/cpu_device.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpushared/check.h"

#include "common/cuda_driver/driver_types.h"
#include "server/device/cpu/address_range.h"
#include "server/device/cpu/copy_units.h"
#include "server/device/cpu/cpu_space.h"
#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/executor_priority.h"
#include "server/device/cpu/host_steal.h"
#include "server/device/cpu/work_queue.h"
#include "server/device/work_checks.h"
#include "server/platform/usable_memory.h"

namespace gpushared::device {
namespace {

// The `stop` flag for runs of a single block. Between blocks, WorkQueue::Continue checks for a
// stop.
const std::atomic<bool> kNever{false};

// The clocks of N executor threads are read every N * 250 µs, which takes the device thread about
// 0.4 µs for each, or 0.2 % of its time.
constexpr std::chrono::microseconds kStealPeriodPerThread{250};

std::uint32_t DefaultThreads() {
  unsigned cores = std::thread::hardware_concurrency();
  // Limits the threads to the container's CPU quota, because further threads would only compete
  // with each other.
  double quota = 0, period = 0;
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  // Reading fails without a quota, because then the first word is "max", which is not a number.
  if (file >> quota >> period && period > 0) {
    const double most = std::max<double>(cores, 1);
    cores = static_cast<unsigned>(std::clamp(quota / period, 1.0, most));
  }
  return std::clamp<std::uint32_t>(cores, 2, kExecutorThreadsMax + 1) - 1;
}

// Programs treat missing attributes as 0. Describes a GPU of compute capability 8.0, whose
// instructions the executor supports, without unsupported features: layered and cube textures,
// mapped host memory, launches in clusters. The clock rate of 1 GHz is nominal, because `%clock`
// counts the host's time stamps.
std::vector<NumberedAttribute> GetAttributes(const CpuDeviceOptions& options) {
  using Id = cuda::DeviceAttribute;
  const auto threads = static_cast<std::int32_t>(options.executor_threads);
  const auto number = static_cast<std::int32_t>(options.number);
  const auto shared = static_cast<std::int32_t>(executor::kSharedBytesMax);
  const auto cache = static_cast<std::int32_t>(std::max(sysconf(_SC_LEVEL2_CACHE_SIZE), 0L));
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  constexpr std::int32_t kCapability = executor::kComputeCapability;
  constexpr std::int32_t kReservedSharedBytes = 1024;
  const std::pair<Id, std::int32_t> table[] = {
      {Id::kThreadsPerBlockMax, executor::kThreadsPerBlockMax},
      {Id::kBlockXMax, 1024},
      {Id::kBlockYMax, 1024},
      {Id::kBlockZMax, 64},
      {Id::kGridXMax, kMost},
      {Id::kGridYMax, 65535},
      {Id::kGridZMax, 65535},
      {Id::kSharedBytesPerBlockMax, 48 * 1024},
      {Id::kConstantBytes, 64 * 1024},
      {Id::kWarpThreads, 32},
      {Id::kPitchBytesMax, kMost},
      {Id::kRegistersPerBlockMax, 65536},
      {Id::kClockKilohertz, 1'000'000},
      {Id::kTextureAlignment, 512},
      {Id::kCopiesBesideKernels, 1},
      {Id::kMultiprocessors, threads},
      {Id::kTexture1dWidthMax, 131072},
      {Id::kTexture2dWidthMax, 131072},
      {Id::kTexture2dHeightMax, 65536},
      {Id::kTexture3dWidthMax, 16384},
      {Id::kTexture3dHeightMax, 16384},
      {Id::kTexture3dDepthMax, 16384},
      {Id::kSurfaceAlignment, 512},
      {Id::kConcurrentKernels, 1},
      {Id::kPciDevice, number},
      {Id::kL2CacheBytes, cache},
      {Id::kThreadsPerMultiprocessorMax, 2048},
      {Id::kCopyEngines, 1},
      {Id::kUnifiedAddressing, 1},
      {Id::kTexturePitchAlignment, 32},
      {Id::kSurface1dWidthMax, 131072},
      {Id::kSurface2dWidthMax, 131072},
      {Id::kSurface2dHeightMax, 65536},
      {Id::kSurface3dWidthMax, 16384},
      {Id::kSurface3dHeightMax, 16384},
      {Id::kSurface3dDepthMax, 16384},
      {Id::kTexture1dLinearWidthMax, 1 << 28},
      {Id::kTexture2dLinearWidthMax, 131072},
      {Id::kTexture2dLinearHeightMax, 65536},
      {Id::kTexture2dLinearPitchBytesMax, 131072 * 16},
      {Id::kComputeCapabilityMajor, kCapability / 10},
      {Id::kComputeCapabilityMinor, kCapability % 10},
      {Id::kGlobalL1Cache, 1},
      {Id::kLocalL1Cache, 1},
      {Id::kSharedBytesPerMultiprocessor, shared + kReservedSharedBytes},
      {Id::kRegistersPerMultiprocessor, 65536},
      {Id::kSingleToDoubleRatio, 2},
      {Id::kComputePreemption, 1},
      {Id::kCooperativeLaunch, 1},
      {Id::kSharedBytesPerBlockOptIn, shared},
      {Id::kVirtualMemory, 1},
      {Id::kBlocksPerMultiprocessorMax, 32},
      {Id::kReservedSharedBytesPerBlock, kReservedSharedBytes},
  };
  std::vector<NumberedAttribute> attributes;
  for (const auto& [id, value] : table) {
    attributes.push_back({.id = static_cast<std::uint32_t>(id), .value = value});
  }
  return attributes;
}

// Returns a UUID that is unique only within one server: devices of one number have equal UUIDs on
// all machines.
std::array<std::uint8_t, 16> GetUuid(std::uint32_t number) {
  std::array<std::uint8_t, 16> uuid = {'g', 'p', 'u', 's', 'h', 'a', 'r', 'e', 'd', ' ', 'c', 'p'};
  std::memcpy(uuid.data() + 12, &number, sizeof number);
  return uuid;
}

DeviceInfo MakeInfo(const CpuDeviceOptions& options) {
  DeviceInfo info;
  info.name = "embedded cpu device, " + std::to_string(options.executor_threads) +
              (options.executor_threads == 1 ? " executor thread" : " executor threads");
  info.id = "cpu:" + std::to_string(options.number);
  info.kind = "cpu";
  info.memory_bytes = options.memory_bytes;
  info.multiprocessors = options.executor_threads;
  info.threads_per_block_max = executor::kThreadsPerBlockMax;
  info.shared_bytes_per_block_max = executor::kSharedBytesMax;
  info.preemption = Preemption::kWithinCommand;
  // Cooperative launches work, because a block that waits for later blocks lets them start.
  info.can_launch_cooperatively = true;
  info.can_kill = true;
  info.can_move_memory = true;
  info.checks_reach = true;
  info.isolates_clients = true;
  info.spinning_pays = false;
  info.uuid = GetUuid(options.number);
  info.attributes = GetAttributes(options);
  return info;
}

// Returns whether the access set is resident.
template <typename Work>
bool IsResident(const Work& work) {
  const AddressRange& range = static_cast<const CpuSpace*>(work.space)->range();
  return range.is_whole() || range.IsResident(GetReach(work));
}

class CpuDevice : public Device, private NodeMaker {
 public:
  CpuDevice(CpuDeviceOptions options, WakeFunction wake)
      : info_(MakeInfo(options)),
        prioritize_(std::move(options.prioritize)),
        output_(std::move(options.output)),
        budget_(std::make_shared<MemoryBudget>(options.memory_bytes)),
        clocks_(options.executor_threads),
        executor_bytes_(options.executor_threads + 1),
        queue_(options.executor_threads, std::move(wake)) {
    for (std::uint32_t i = 0; i <= options.executor_threads; ++i)
      executors_.emplace_back(prioritize_);
  }
  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;

  ~CpuDevice() override {
    queue_.Close();
    for (std::thread& thread : threads_) thread.join();
  }

  Status Start();

  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<Space>> CreateSpace(const SpaceOptions& options) override;
  std::uint64_t free_memory_bytes() const override { return budget_->free_bytes(); }
  void Submit(const LaunchWork& work) override;
  void Submit(const CopyWork& work) override;
  void Submit(const FillWork& work) override;
  void SubmitGraph(const GraphWork& work) override { queue_.Submit(work, *this); }
  void RequestStop(WorkId id) override { queue_.RequestStop(id); }
  void RequestKill(WorkId id) override { queue_.RequestKill(id); }
  std::size_t TakeCompletions(std::span<Completion> out) override {
    return queue_.TakeCompletions(out);
  }
  std::chrono::nanoseconds HostStealUntil(DeviceClock::time_point now) override;
  std::uint64_t executor_bytes() const override;

 private:
  std::shared_ptr<QueuedWork> MakeNode(const GraphWork& graph, std::size_t node) const override;
  // Returns the work, which contains the reason if it is rejected.
  std::shared_ptr<QueuedWork> Checked(const LaunchWork& work) const;
  static std::shared_ptr<QueuedWork> Checked(const CopyWork& work);
  static std::shared_ptr<QueuedWork> Checked(const FillWork& work);
  static std::shared_ptr<QueuedWork> Checked(const GraphNode& work, std::uint64_t units,
                                             Status rejected);
  void StartThread(const std::string& name, const std::function<void()>& body);
  // Main function of an executor thread.
  void Execute(std::uint32_t multiprocessor);
  // Main function of the spare thread, which takes over when others are stuck; see WorkQueue.
  void ExecuteAsSpare();
  // Runs the claims that `next` returns, on the thread with index `number`.
  void RunClaims(std::uint32_t number, std::unique_ptr<executor::BlockExecutor>& blocks,
                 const std::function<std::optional<Claim>()>& next);
  // Converts the work to the executor's form. `further`: see CpuModule::window.
  executor::Launch GetLaunch(const LaunchWork& work, std::uint32_t multiprocessor,
                             const MemoryPieces::List& further) const;
  // `blocks` is the thread's executor; null after a run was paused, because the paused run keeps
  // it.
  void RunLaunch(Claim& claim, std::unique_ptr<executor::BlockExecutor>& blocks,
                 std::uint32_t number);
  void CountMemory(std::uint32_t number, const executor::BlockExecutor* blocks);
  template <typename Work>
  void RunPieces(const Claim& claim, const Work& work, void (*run)(const Work&, std::uint64_t));
  void Print(QueuedWork& work, std::string_view text) const;

  const DeviceInfo info_;
  const PrioritizeFunction prioritize_;
  const OutputFunction output_;
  const std::shared_ptr<MemoryBudget> budget_;
  std::vector<ExecutorClock> clocks_;
  ExecutorClock spare_clock_;
  std::deque<ExecutorPriority> executors_;  // One per thread, the spare thread's last.
  // Bytes of each thread's executor, written by that thread; the spare thread's is last. Relaxed,
  // because no other data depends on it.
  std::vector<std::atomic<std::uint64_t>> executor_bytes_;
  // Time at which the clocks were last read. Used by the device thread only.
  DeviceClock::time_point updated_;
  HostSteal host_steal_;
  std::vector<ExecutorTimes::Totals> totals_;  // A member only so that its memory is reused.
  const std::shared_ptr<RunStore> store_ = std::make_shared<RunStore>();
  WorkQueue queue_;
  std::vector<std::thread> threads_;
};

Status CpuDevice::Start() {
  // Blocks all signals, because they must be handled by threads that expect them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    for (std::uint32_t i = 0; i < info_.multiprocessors; ++i) {
      StartThread("-sm" + std::to_string(i), [this, i] { Execute(i); });
    }
    StartThread("-spare", [this] { ExecuteAsSpare(); });
  } catch (const std::system_error& error) {
    status = Status(StatusCode::kInternal, info_.id + " rejected: executor thread " +
                                               std::to_string(threads_.size() + 1) + " of " +
                                               std::to_string(info_.multiprocessors) +
                                               " cannot start: " + error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

void CpuDevice::StartThread(const std::string& name, const std::function<void()>& body) {
  threads_.emplace_back(body);
  // Linux rejects thread names longer than 15 characters.
  const std::string whole = (info_.id + name).substr(0, 15);
  pthread_setname_np(threads_.back().native_handle(), whole.c_str());
}

Result<std::unique_ptr<Space>> CpuDevice::CreateSpace(const SpaceOptions& options) {
  Result<std::unique_ptr<AddressRange>> range = AddressRange::Reserve(
      options.quota_bytes, budget_, options.left_free_bytes, options.store, options.base);
  if (!range) return range.status();
  return std::unique_ptr<Space>(std::make_unique<CpuSpace>(std::move(*range)));
}

std::shared_ptr<QueuedWork> CpuDevice::Checked(const GraphNode& work, std::uint64_t units,
                                               Status rejected) {
  const WorkHeader& header =
      std::visit([](const auto& any) -> const WorkHeader& { return any; }, work);
  if (rejected.ok() && !std::visit([](const auto& any) { return IsResident(any); }, work)) {
    rejected = Status(StatusCode::kInternal, "work rejected: its client's memory is swapped out");
  }
  if (rejected.ok() && header.first_unit > units) {
    rejected = Status(StatusCode::kInvalidArgument, "work rejected: it resumes at unit " +
                                                        std::to_string(header.first_unit) + " of " +
                                                        std::to_string(units));
  }
  return std::make_shared<QueuedWork>(work, units, std::move(rejected));
}

std::shared_ptr<QueuedWork> CpuDevice::Checked(const LaunchWork& work) const {
  return Checked(work, work.grid.Count(), CheckLaunch(work, info_));
}

std::shared_ptr<QueuedWork> CpuDevice::Checked(const CopyWork& work) {
  const AddressRange& range = static_cast<const CpuSpace*>(work.space)->range();
  return Checked(work, CopyUnits(work.width_bytes, work.height),
                 CheckCopy(work, range.mapped(), range.pieces()));
}

std::shared_ptr<QueuedWork> CpuDevice::Checked(const FillWork& work) {
  const AddressRange& range = static_cast<const CpuSpace*>(work.space)->range();
  return Checked(work, CopyUnits(work.width_bytes, work.height),
                 CheckFill(work, range.mapped(), range.pieces()));
}

std::shared_ptr<QueuedWork> CpuDevice::MakeNode(const GraphWork& graph, std::size_t node) const {
  return std::visit(
      [&](auto work) {
        static_cast<WorkHeader&>(work) = graph;
        work.first_unit = 0;
        if constexpr (std::is_same_v<decltype(work), LaunchWork>) {
          if (graph.reach != nullptr) work.reach = graph.reach;
          work.may_be_paused = graph.may_be_paused;
        }
        return Checked(work);
      },
      *graph.nodes[node]);
}

void CpuDevice::Submit(const LaunchWork& work) {
  if (work.paused != nullptr) {
    Check(IsResident(work), "a launch resumes only while its client's memory is resident");
    auto rest = std::static_pointer_cast<QueuedWork>(work.paused);
    rest->SubmitAgain(work);
    return queue_.Submit(std::move(rest));
  }
  queue_.Submit(Checked(work));
}

void CpuDevice::Submit(const CopyWork& work) { queue_.Submit(Checked(work)); }

void CpuDevice::Submit(const FillWork& work) { queue_.Submit(Checked(work)); }

void CpuDevice::Execute(std::uint32_t multiprocessor) {
  std::unique_ptr<executor::BlockExecutor> blocks = store_->Take();
  ExecutorClock& clock = clocks_[multiprocessor];
  clock.Begin();
  ExecutorPriority& executor = executors_[multiprocessor];
  executor.Begin();
  queue_.Enlist(executor);
  const std::function<void()> rest = [&] {
    if (blocks != nullptr) blocks->ReleaseMemory();
    store_->Clear();
    CountMemory(multiprocessor, blocks.get());
  };
  RunClaims(multiprocessor, blocks, [&] { return queue_.Next(&clock, &rest, &executor); });
}

void CpuDevice::ExecuteAsSpare() {
  std::unique_ptr<executor::BlockExecutor> blocks;
  spare_clock_.Begin();
  executors_.back().Begin();  // Never demoted, because the spare thread only runs urgent work.
  RunClaims(info_.multiprocessors, blocks, [&] {
    // The spare thread is hardly ever needed, so it keeps no executor.
    if (blocks != nullptr) store_->Return(std::move(blocks));
    CountMemory(info_.multiprocessors, nullptr);
    spare_clock_.Idle();
    return queue_.NextOfSpare(&spare_clock_);
  });
}

void CpuDevice::CountMemory(std::uint32_t number, const executor::BlockExecutor* blocks) {
  const std::uint64_t bytes = blocks == nullptr ? 0 : blocks->memory_bytes();
  executor_bytes_[number].store(bytes, std::memory_order_relaxed);
}

void CpuDevice::RunClaims(std::uint32_t number, std::unique_ptr<executor::BlockExecutor>& blocks,
                          const std::function<std::optional<Claim>()>& next) {
  while (std::optional<Claim> claim = next()) {
    const auto& what = claim->work->what;
    if (std::holds_alternative<LaunchWork>(what)) {
      RunLaunch(*claim, blocks, number);
    } else if (const auto* copy = std::get_if<CopyWork>(&what)) {
      RunPieces(*claim, *copy, &RunCopyUnit);
    } else {
      RunPieces(*claim, std::get<FillWork>(what), &RunFillUnit);
    }
  }
}

std::chrono::nanoseconds CpuDevice::HostStealUntil(DeviceClock::time_point now) {
  if (now - updated_ >= kStealPeriodPerThread * std::ssize(clocks_)) {
    updated_ = now;
    totals_.clear();
    for (ExecutorClock& clock : clocks_) totals_.push_back(clock.Totals());
    host_steal_.Update(totals_);
  }
  return host_steal_.total() + queue_.stalled();
}

executor::Launch CpuDevice::GetLaunch(const LaunchWork& work, std::uint32_t multiprocessor,
                                      const MemoryPieces::List& further) const {
  const auto& module = static_cast<const CpuModule&>(*work.module);
  executor::Launch launch;
  launch.program = &module.program(work.kernel);
  launch.grid = work.grid;
  launch.block = work.block;
  launch.dynamic_shared_bytes = work.dynamic_shared_bytes;
  launch.parameters = work.parameters;
  launch.memory = module.window(further);
  launch.memory.reach = work.reach;
  SpaceKernelMemory& kernel_memory = module.kernel_memory();
  launch.heap = kernel_memory.heap.ForKernel(launch.program->allocates());
  launch.stack_bytes = kernel_memory.stack_bytes.load(std::memory_order_relaxed);
  launch.variables_at = launch.memory.variables_base;
  launch.is_cooperative = work.is_cooperative;
  launch.multiprocessor = multiprocessor;
  launch.multiprocessors = info_.multiprocessors;
  launch.grid_id = work.id;
  return launch;
}

void CpuDevice::RunLaunch(Claim& claim, std::unique_ptr<executor::BlockExecutor>& blocks,
                          std::uint32_t number) {
  QueuedWork& work = *claim.work;
  const auto& what = std::get<LaunchWork>(work.what);
  const auto further = static_cast<const CpuModule&>(*what.module).further();
  // %smid is the number of the thread; the spare thread, which has no multiprocessor, uses 0.
  executor::Launch launch = GetLaunch(what, number % info_.multiprocessors, *further);
  executor::PrintFunction print;
  if (output_) {
    // Captures two words, which std::function stores without allocating.
    print = [this, &claim](std::string_view text) {
      claim.clock->Block([&] { Print(*claim.work, text); });
    };
    launch.print = &print;
  }
  const std::function<void(std::chrono::nanoseconds)> sleep = [&](auto time) {
    claim.clock->Sleep(time);
  };
  launch.sleep = &sleep;
  launch.state = &work.launch_state;
  const std::function<std::optional<std::uint64_t>(bool)> more_blocks = [&](bool while_waiting) {
    return while_waiting ? queue_.Extend(claim) : queue_.Continue(claim);
  };
  launch.more_blocks = &more_blocks;
  std::uint64_t reserved = 0;
  const std::function<bool(std::uint64_t)> may_pause = [&](std::uint64_t bytes) {
    reserved = bytes;
    return store_->Reserve(what.space, bytes);
  };
  const executor::PauseTerms terms = queue_.GetTerms(claim, may_pause);
  if (what.may_be_paused) launch.pause = &terms;
  executor::RunOutcome outcome;
  if (claim.paused.empty()) {
    if (blocks == nullptr) blocks = store_->Take();
    outcome = blocks->Run(launch, claim.unit, 1, kNever, work.abandon);
  } else {
    if (blocks != nullptr) store_->Return(std::move(blocks));
    blocks = claim.paused.Take();
    outcome = blocks->Resume(launch, work.abandon);
  }
  if (outcome.end == executor::RunOutcome::End::kPaused) {
    PausedRun run(std::move(blocks), store_, what.space, reserved);
    CountMemory(number, nullptr);
    return queue_.Pause(claim, std::move(run));
  }
  CountMemory(number, blocks.get());
  if (!outcome.fault) return queue_.Finish(claim, Status());
  queue_.Finish(claim, Status(StatusCode::kKernelFault, std::move(outcome.fault->message)),
                executor::GetKind(outcome.fault->kind));
}

std::uint64_t CpuDevice::executor_bytes() const {
  std::uint64_t sum = store_->bytes();
  for (const auto& bytes : executor_bytes_) sum += bytes.load(std::memory_order_relaxed);
  return sum;
}

template <typename Work>
void CpuDevice::RunPieces(const Claim& claim, const Work& work,
                          void (*run)(const Work&, std::uint64_t)) {
  for (std::optional<std::uint64_t> unit = claim.unit; unit; unit = queue_.Continue(claim)) {
    run(work, *unit);
  }
  queue_.Finish(claim, Status());
}

void CpuDevice::Print(QueuedWork& work, std::string_view text) const {
  const auto& launch = std::get<LaunchWork>(work.what);
  const std::uint64_t most = static_cast<const CpuModule&>(*launch.module)
                                 .kernel_memory()
                                 .printed_bytes.load(std::memory_order_relaxed);
  const std::uint64_t before = work.output_bytes.fetch_add(text.size(), std::memory_order_relaxed);
  if (before > most) return;
  const WorkHeader& header = work.header();
  KernelOutput output{
      .work = header.id, .stream = header.stream, .space = header.space, .text = text};
  output.text = text.substr(0, most - before);
  if (!output.text.empty()) output_(output);
  if (before + text.size() > most) {
    const std::string cut =
        "\n[what this launch printed beyond " + std::to_string(most) + " bytes was cut]\n";
    output.text = cut;
    output_(output);
  }
}

}  // namespace

Result<std::unique_ptr<Device>> CreateCpuDevice(CpuDeviceOptions options, WakeFunction wake) {
  if (options.executor_threads > kExecutorThreadsMax) {
    return Status(StatusCode::kInvalidArgument,
                  "cpu device rejected: " + std::to_string(options.executor_threads) +
                      " executor threads asked, at most " + std::to_string(kExecutorThreadsMax));
  }
  if (options.executor_threads == 0) options.executor_threads = DefaultThreads();
  if (options.memory_bytes == 0) options.memory_bytes = server::UsableMemoryBytes() / 2;
  auto device = std::make_unique<CpuDevice>(std::move(options), std::move(wake));
  if (Status started = device->Start(); !started.ok()) return started;
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace gpushared::device
