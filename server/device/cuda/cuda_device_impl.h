// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_CUDA_DEVICE_IMPL_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_CUDA_DEVICE_IMPL_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "server/device/cuda/channel.h"
#include "server/device/cuda/claim_words.h"
#include "server/device/cuda/code_maker.h"
#include "server/device/cuda/contain_words.h"
#include "server/device/cuda/cuda_context.h"
#include "server/device/cuda/cuda_device.h"
#include "server/device/cuda/cuda_memory.h"
#include "server/device/cuda/cuda_module.h"
#include "server/device/cuda/drain.h"
#include "server/device/cuda/graph_store.h"
#include "server/device/cuda/host_memory.h"
#include "server/device/cuda/kernel_loader.h"
#include "server/device/cuda/sm_partition.h"
#include "server/device/cuda/stream_table.h"
#include "server/device/cuda/urgent_writes.h"
#include "server/device/work_checks.h"

namespace gpushared::device::cuda {

// The driver reads this variable when it is initialized; without it, the driver uses 8 connections.
inline constexpr const char* kConnectionsVariable = "CUDA_DEVICE_MAX_CONNECTIONS";

// Implementation of CreateCudaDevice. Start and the functions that only Start uses are defined in
// cuda_device_start.cpp, everything else in cuda_device.cpp.
//
// Threads: see Device.
class CudaDevice : public Device {
 public:
  CudaDevice(std::shared_ptr<CudaContext> context, CudaDeviceOptions options, WakeFunction wake)
      : context_(std::move(context)), options_(std::move(options)), wake_(std::move(wake)) {}
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override { context_->idle_windows().GiveUp(); }

  // Called on the thread that opened the context, where the context is current.
  Status Start();

  IdleWindows& idle_windows() { return context_->idle_windows(); }

  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<Space>> CreateSpace(const SpaceOptions& options) override;
  std::uint64_t free_memory_bytes() const override { return memory_->budget()->free_bytes(); }
  Result<std::unique_ptr<PinnedMemory>> Pin(std::span<std::byte> memory) override {
    return PinnedRegions::Pin(pinned_, memory);
  }

  void Submit(const LaunchWork& work) override {
    SubmitChecked(work, work.grid.Count(), CheckLaunchHere(work));
  }
  static const CudaSpace& GetSpace(const WorkHeader& work) {
    return static_cast<const CudaSpace&>(*work.space);
  }
  bool CanStop(const LaunchWork& work, std::chrono::nanoseconds expected) override;
  bool CanKill(const LaunchWork& work) const override {
    return static_cast<const CudaModule*>(work.module)->contained() != nullptr;
  }
  void Submit(const CopyWork& work) override {
    SubmitChecked(work, CopyUnits(work.width_bytes, work.height),
                  CheckCopy(work, GetSpace(work).mapped(), GetSpace(work).variables()));
  }
  void Submit(const FillWork& work) override {
    SubmitChecked(work, CopyUnits(work.width_bytes, work.height),
                  CheckFill(work, GetSpace(work).mapped(), GetSpace(work).variables()));
  }
  bool TakesNode(const GraphNode& node) const override;
  void SubmitGraph(const GraphWork& work) override;
  void RequestStop(WorkId id) override { Stop(id, false); }
  void RequestKill(WorkId id) override { Stop(id, true); }
  bool ReportKernelsToEnd() override { return contain_->ReportAllToEnd(); }
  std::size_t TakeCompletions(std::span<Completion> out) override;
  bool must_be_polled() const override {
    return in_channels_ > 0 || (context_->is_dead() && !loss_);
  }
  std::chrono::nanoseconds HostStealUntil(DeviceClock::time_point /*now*/) override {
    return context_->idle_windows().held_back();
  }
  const DeviceLoss* loss() const override { return loss_ ? &*loss_ : nullptr; }

 private:
  Status ReadInfo();
  Status ReadAttributes();
  Status MakeLoaders();
  Status MakePartitions();
  Status MakeCompiler();
  Status TryCode(const Result<std::vector<std::byte>>& code);
  Status MakeChannels();
  Result<Stream> MakeStream(std::size_t level, int priority);
  // Stream in a partition, and the number of its channel.
  struct PartStream {
    std::size_t number = 0;
    Stream stream = nullptr;
  };
  Status TryParts(std::span<const PartStream> streams);
  Status TryPart(const PartStream& part, Function trial);
  // Level of the channels that the work may use.
  std::uint8_t GetLevel(const WorkHeader& header) const;
  Status CheckLaunchHere(const LaunchWork& work) const;
  // Returns the preemptible form that the launch could use; null if it uses the client's own
  // kernel.
  const PreemptibleKernel* PreemptibleFormFor(const LaunchWork& work) const;
  std::uint32_t MultiprocessorsFor(const WorkHeader& header) const;
  // Returns how many blocks of the launch run at once; 0 if the driver does not report it.
  std::uint64_t BlocksAtOnce(const LaunchWork& work, const PreemptibleKernel& form);
  void SubmitChecked(decltype(Item::work) work, std::uint64_t units, Status rejected);
  Status CheckNode(const GraphWork& graph, const GraphNode& node) const;
  void Stop(WorkId id, bool is_kill);
  // Makes the context current on the thread that submits and polls; returns false on failure.
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
  // By class; null if all multiprocessors are available.
  std::array<std::unique_ptr<SmPartition>, kDeviceClasses> partitions_;
  std::unique_ptr<CompletionMarks> marks_;
  // Image of the trial kernel: compiled if there is a compiler whose output the driver accepts;
  // otherwise PTX text.
  std::vector<std::byte> trial_image_;
  std::shared_ptr<CodeMaker> maker_;  // Null if there is no external compiler.
  std::unique_ptr<ClaimWords> claims_;
  std::shared_ptr<GraphStore> graphs_;      // Null if the driver does not support graphs.
  std::shared_ptr<KernelLoaders> loaders_;  // If null, kernels are loaded with their modules.
  std::shared_ptr<UrgentWrites> writes_;
  std::shared_ptr<ContainWords> contain_;
  std::optional<ChannelEnvironment> environment_;
  std::vector<std::unique_ptr<Channel>> channels_;
  StreamTable streams_;
  Drain drain_{context_->idle_windows(), channels_};

  std::thread::id bound_;        // Thread on which the context is known to be current.
  std::size_t in_channels_ = 0;  // Number of work items in the channels.
  std::vector<std::unique_ptr<Item>> finished_;  // Empty between calls.
  std::vector<std::uint32_t> unknown_nodes_;     // Used for the graph being submitted.
  std::vector<std::unique_ptr<Item>> spare_;
  std::deque<Completion> completions_;
  bool wakes_ = false;  // Whether the next completion calls the wake function.
  std::optional<DeviceLoss> loss_;
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CUDA_DEVICE_IMPL_H_
