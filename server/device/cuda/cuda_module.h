// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_CUDA_MODULE_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_CUDA_MODULE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/result.h"

#include "server/device/cuda/code_maker.h"
#include "server/device/cuda/contain_words.h"
#include "server/device/cuda/contained_launches.h"
#include "server/device/cuda/cuda_memory.h"
#include "server/device/cuda/cuda_prepared.h"
#include "server/device/cuda/kernel_loader.h"
#include "server/device/cuda/preemptible_kernel.h"
#include "server/device/device.h"

namespace gpushared::device::cuda {

// Owner of objects that were made from kernels of a module or of a client.
class KernelManager {
 public:
  virtual ~KernelManager() = default;
  // Called before the module is unloaded, when no work uses it. The context is current on this
  // thread.
  virtual void Forget(const device::Module& module) = 0;
  // Called before a client's space is destroyed, after its modules.
  virtual void Forget(const Space& space) = 0;
};

// How a client's modules are loaded.
struct ModuleLoading {
  Isolation isolation = Isolation::kOff;
  // Makes preemptible forms and compiles isolated modules. If null, there are no such forms, and
  // the driver compiles.
  std::shared_ptr<CodeMaker> maker;
  // Whether the driver may compile isolated modules; otherwise they are rejected if `maker` is
  // null.
  bool driver_may_compile = true;
  // Words that contained modules share with the device.
  std::shared_ptr<ContainWords> words;
  // Graphs of the module's kernels; null if not supported.
  std::shared_ptr<KernelManager> graphs;
  // If null, all kernels are loaded with their module, because the driver cannot load them
  // separately.
  std::shared_ptr<KernelLoaders> loaders;
};

// A client's instance of a module. The driver places its variables outside of the client's range;
// those of a fenced module are at the top of the range. Variables declared in the PTX count against
// the quota.
//
// The preemptible forms of its kernels (server/ptx/passes/claim.h) are added when they have been
// compiled, as a second module of the driver. Because two modules would have two instances of a
// variable, the forms of a module with such variables are loaded only together with the module, if
// their code is cached from an earlier load.
//
// In a module with many kernels, the code of each kernel and of its preemptible form is loaded when
// the kernel is first launched, because most clients use few kernels of a library.
//
// Thread-safe; immutable, except for kernels and preemptible forms that are added. Destroyed off
// the device thread, when no work uses it, because unloading may wait.
class CudaModule : public device::Module {
 public:
  // Loads the module into the driver. If the driver has to compile, it does so now, so that no
  // launch waits for it. Must not be called on the device thread. Machine code is only checked by
  // the driver.
  static Result<std::shared_ptr<const device::Module>> Place(const CudaPrepared& prepared,
                                                             CudaContext& context,
                                                             std::shared_ptr<CudaRange> range,
                                                             const ModuleLoading& loading);
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;
  ~CudaModule() override;

  std::span<const KernelInfo> kernels() const override { return kernels_; }
  std::span<const VariableInfo> variables() const override { return variable_infos_; }
  std::span<const MemoryPiece> variable_memory() const override { return variable_memory_; }
  // Driver's handle of a supported kernel.
  Function function(std::uint32_t kernel) const { return functions_[kernel]; }
  // Of a module with more kernels than this, each kernel is loaded when it is first launched.
  static constexpr std::size_t kLoadedAtOnceMax = 16;
  // Returns whether the kernel's code is loaded, so that its launch does not block in the driver;
  // starts loading the code if it is not. Returns an error if the code cannot be loaded. Device
  // thread only, like the next call.
  Result<bool> IsReady(std::uint32_t kernel, bool is_urgent) const {
    return late_ == nullptr ? Result<bool>(true) : IsLateReady(kernel, is_urgent);
  }
  // Null unless the kernels are contained. Device thread only.
  ContainedLaunches* contained() const { return contained_.get(); }
  // Returns the preemptible form; null if it does not exist (yet). The result does not change once
  // it is set.
  const PreemptibleKernel* claimed(std::uint32_t kernel) const {
    // Acquire, pairs with the release in TakeClaims: the forms have been loaded.
    const auto* const all = claimed_.load(std::memory_order_acquire);
    if (all == nullptr || (*all)[kernel].function == nullptr) return nullptr;
    if (late_claims_ != nullptr && !IsLateClaimReady(kernel)) return nullptr;
    return &(*all)[kernel];
  }

 private:
  // Code that is loaded on first use.
  struct Late {
    enum class State : std::uint8_t { kUnloaded, kWanted, kLoaded, kFailed };
    std::atomic<State> state = State::kUnloaded;
    Status why;  // Reason for a failure.
  };
  using Lates = std::unique_ptr<Late[]>;
  using Functions = std::map<std::string, Function, std::less<>>;

  // Shared by the module and the compilation of its preemptible forms, because either may end
  // first.
  struct Target {
    explicit Target(CudaModule* whose) : module(whose) {}

    Mutex mutex;
    CudaModule* module GPUSHARED_GUARDED_BY(mutex);  // Null after the module was destroyed.
  };
  CudaModule(CudaContext& context, std::shared_ptr<CudaRange> range, const CudaPrepared& prepared,
             const ModuleLoading& loading)
      : context_(context),
        range_(std::move(range)),
        fence_constant_(prepared.fence_constant()),
        maker_(loading.maker),
        graphs_(loading.graphs),
        loaders_(loading.loaders) {}
  Status TakeMemory(const CudaPrepared& prepared, std::shared_ptr<ContainWords> words);
  Status Contain(const CudaPrepared& prepared, std::shared_ptr<ContainWords> words);
  Status LoadImage(const CudaPrepared& prepared);
  Status WriteVariables(const CudaPrepared& prepared);
  Status FindClaims(const CudaPrepared& prepared);
  void CompileClaims(const std::shared_ptr<const PreemptibleText>& claims);
  void AddClaims(const PreemptibleText& claims, const Result<std::vector<std::byte>>& code);
  Status LoadClaims(const PreemptibleText& claims, std::vector<std::byte> code);
  Status TakeClaims(const PreemptibleText& claims, cuda::Module module);
  Result<PreemptibleKernel> TakeClaim(const PreemptibleText::Form& form, cuda::Module module);
  Result<PreemptibleKernel> FinishClaim(PreemptibleKernel claim);
  Status WriteFence(cuda::Module module);
  Status FindKernels(const CudaPrepared& prepared);
  Status FindVariables(const CudaPrepared& prepared);
  Status FindFunction(cuda::Module module, const std::string& name, Function* function);
  Status NamesFromText(const CudaPrepared& prepared, std::vector<std::string>& names);
  Status NamesFromDriver(std::vector<std::string>& names);
  Status Describe(const CudaPrepared& prepared, Function function, KernelInfo& info);
  // Copies the access sets found in the text if the executed code is made from the text.
  static void TakeReach(const CudaPrepared& prepared, const KernelInfo& parsed, KernelInfo& info);
  struct Limits {
    std::uint32_t threads_per_block = 0;
    std::uint32_t static_shared_bytes = 0;
    std::uint64_t local_bytes = 0;  // Per thread.
    // Same meaning as in KernelInfo.
    std::uint32_t constant_bytes = 0, registers = 0, ptx_version = 0, binary_version = 0;
  };
  Result<Limits> FindLimits(Function function);
  // Lists the functions of the module, without loading their code.
  Result<Functions> ListFunctions(cuda::Module module);
  Status FindLateKernels(const CudaPrepared& prepared);
  Status DescribeLate(const CudaPrepared& prepared, Function function, KernelInfo& info);
  Result<bool> IsLateReady(std::uint32_t kernel, bool is_urgent) const;
  bool IsLateClaimReady(std::uint32_t kernel) const;
  void LoadLate(std::uint32_t kernel);
  void LoadLateClaim(std::uint32_t kernel);
  Result<int> Ask(const char* doing, FunctionAttribute attribute, Function function);
  Status FindParameters(const CudaPrepared& prepared, Function function, KernelInfo& info);
  Result<std::uint32_t> OptIntoSharedMemory(Function function, std::uint32_t static_bytes);

  CudaContext& context_;  // Outlives the module, because the range keeps it alive.
  const std::shared_ptr<CudaRange> range_;
  const std::string fence_constant_;  // Name of the fence's variable; empty without a fence.
  const std::shared_ptr<CodeMaker> maker_;
  const std::shared_ptr<KernelManager> graphs_;  // Null if graphs are not supported.
  const std::shared_ptr<KernelLoaders> loaders_;
  Lates late_;         // By kernel. If null, all are loaded.
  Lates late_claims_;  // For preemptible forms; set before claimed_.
  // Size of the variables outside of the range. Counts against the quota.
  std::uint64_t variable_bytes_ = 0;
  CudaRange::Block variables_;  // Block of the variables inside the range.
  std::unique_ptr<ContainedLaunches> contained_;
  cuda::Module module_ = nullptr;
  std::vector<KernelInfo> kernels_;
  std::vector<VariableInfo> variable_infos_;
  std::vector<MemoryPiece> variable_memory_;
  std::vector<Function> functions_;  // By kernel; null if a pass rejected the kernel.

  std::shared_ptr<Target> target_;  // Null if nothing is compiled for the module.
  // Module of the preemptible forms; null if they are part of module_. Set before claimed_.
  cuda::Module preemptible_module_ = nullptr;
  // Indexed like functions_. Set before claimed_.
  std::vector<PreemptibleKernel> preemptible_kernels_;
  std::atomic<const std::vector<PreemptibleKernel>*> claimed_ = nullptr;
};

// Memory and modules of a client on a GPU.
class CudaSpace : public Space {
 public:
  CudaSpace(std::shared_ptr<CudaContext> context, std::unique_ptr<CudaRange> range,
            ModuleLoading loading)
      : context_(std::move(context)),
        range_(std::move(range)),
        loading_(std::move(loading)),
        recipe_{.form = ModuleRecipe::Form::kForDriver,
                .passes = {.isolation = loading_.isolation, .claims = loading_.maker != nullptr},
                .range_bytes = range_bytes()} {}
  CudaSpace(const CudaSpace&) = delete;
  CudaSpace& operator=(const CudaSpace&) = delete;
  ~CudaSpace() override {
    if (loading_.graphs != nullptr) loading_.graphs->Forget(*this);
  }

  std::uint64_t base() const override { return range_->mapped().base; }
  std::uint64_t range_bytes() const override { return range_->mapped().range_bytes; }
  Result<std::uint64_t> Resize(std::uint64_t mapped_bytes) override;
  MemoryPiece mapping_area() const override { return range_->mapping_area(); }
  Status SwapPageOut(std::uint64_t offset) override;
  Status SwapPageIn(std::uint64_t offset) override;
  std::uint64_t NonResidentBytes(std::uint64_t address, std::uint64_t bytes) const override {
    return range_->NonResidentBytes(address, bytes);
  }
  SpaceUse use() override { return range_->use(); }
  bool IsResident(const Reach& reach) const { return range_->IsResident(reach); }
  Result<std::unique_ptr<Chunk>> MakeChunk(std::uint64_t bytes) override;
  Status MapChunk(Chunk& chunk, std::uint64_t address) override;
  void HideMapping(std::uint64_t address) override { range_->HideMapping(address); }
  Status Unmap(std::uint64_t address, std::uint64_t bytes) override;
  const ModuleRecipe& recipe() const override { return recipe_; }
  Result<std::shared_ptr<const PreparedModule>> CompileModule(
      std::shared_ptr<const PreparedModule> module, bool may_take_long) override;
  Result<std::shared_ptr<const device::Module>> PlaceModule(
      std::shared_ptr<const PreparedModule> module) override;
  MappedRange mapped() const { return range_->mapped(); }
  const MemoryPieces& variables() const { return range_->variables(); }

 private:
  // Prepares the calling thread for driver calls.
  Status Enter() const;

  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<CudaRange> range_;
  const ModuleLoading loading_;
  const ModuleRecipe recipe_;
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CUDA_MODULE_H_
