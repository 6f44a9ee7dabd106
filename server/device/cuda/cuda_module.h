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

// Whoever keeps something that was made of a module's kernels, or of a client's.
class KernelManager {
 public:
  virtual ~KernelManager() = default;
  // Before the module is unloaded, when no work uses it. The context is current on this thread.
  virtual void Forget(const device::Module& module) = 0;
  // Before a client's space goes, behind its modules.
  virtual void Forget(const Space& space) = 0;
};

// How modules of a client are loaded.
struct ModuleLoading {
  Isolation isolation = Isolation::kOff;
  // Makes claimed forms, and compiles what is isolated. Null: there are none, and the driver does.
  std::shared_ptr<CodeMaker> maker;
  bool driver_may_compile = true;  // What is isolated; else such a module is rejected.
  // For what is contained.
  std::shared_ptr<ContainWords> words;
  // Graphs of its kernels; null: there are none.
  std::shared_ptr<KernelManager> graphs;
  // Null: all kernels are loaded with their module, since the driver cannot do otherwise.
  std::shared_ptr<KernelLoaders> loaders;
};

// A client's instance of a module. The driver places its variables outside of the client's range;
// those of a fenced module lie at the top of it. Variables that its PTX declares count against the
// quota.
//
// Claimed forms of its kernels (server/ptx/passes/claim.h) come later, when they have been
// compiled, as a second module of the driver. Two modules would have two instances of a variable.
// In that case they come only with the module itself, if their code is kept from an earlier load.
//
// Of a module with many kernels the driver gets the code of those only that are launched, claimed
// forms included: most clients use few kernels of a library.
//
// Thread-safe; immutable, except for the kernels and claimed forms that come. Destroyed off the
// device thread, when no work uses it, since unloading may wait.
class CudaModule : public device::Module {
 public:
  // Gives it to the driver. What the driver has to compile is compiled here and now, so that no
  // launch does it. Not on the device thread. Machine code is taken as it is: the driver's checks
  // of it are all there are.
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
  // The driver's handle of a supported kernel.
  Function function(std::uint32_t kernel) const { return functions_[kernel]; }
  // More are not loaded before they are launched.
  static constexpr std::size_t kLoadedAtOnceMax = 16;
  // Whether the driver has the kernel's code, so that its launch waits for nothing inside of the
  // driver. Otherwise it is loaded from now on. An error: it cannot be. The device thread's, as the
  // next.
  Result<bool> IsReady(std::uint32_t kernel, bool is_urgent) const {
    return late_ == nullptr ? Result<bool>(true) : IsLateReady(kernel, is_urgent);
  }
  // Null unless its kernels are contained. The device thread's.
  ContainedLaunches* contained() const { return contained_.get(); }
  // Null where there is none, or none yet. Stays what it is.
  const PreemptibleKernel* claimed(std::uint32_t kernel) const {
    // Acquire, pairs with the release in TakeClaims: the forms have been loaded.
    const auto* const all = claimed_.load(std::memory_order_acquire);
    if (all == nullptr || (*all)[kernel].function == nullptr) return nullptr;
    if (late_claims_ != nullptr && !IsLateClaimReady(kernel)) return nullptr;
    return &(*all)[kernel];
  }

 private:
  // Code that is loaded when it is first wanted.
  struct Late {
    enum class State : std::uint8_t { kUnloaded, kWanted, kLoaded, kFailed };
    std::atomic<State> state = State::kUnloaded;
    Status why;  // It failed.
  };
  using Lates = std::unique_ptr<Late[]>;
  using Functions = std::map<std::string, Function, std::less<>>;

  // What the module and its claimed forms' compilation have in common: either may end first.
  struct Target {
    explicit Target(CudaModule* whose) : module(whose) {}

    Mutex mutex;
    CudaModule* module GPUSHARED_GUARDED_BY(mutex);  // Null when it is gone.
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
  // Takes over what the text touches, if the text is what runs.
  static void TakeReach(const CudaPrepared& prepared, const KernelInfo& told, KernelInfo& info);
  struct Limits {
    std::uint32_t threads_per_block = 0;
    std::uint32_t static_shared_bytes = 0;
    std::uint64_t local_bytes = 0;  // Per thread.
    // KernelInfo has the same.
    std::uint32_t constant_bytes = 0, registers = 0, ptx_version = 0, binary_version = 0;
  };
  Result<Limits> FindLimits(Function function);
  // These do not load the kernels.
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

  CudaContext& context_;  // Outlived by it: the range keeps the context alive.
  const std::shared_ptr<CudaRange> range_;
  const std::string fence_constant_;  // Its name; empty: there is no fence.
  const std::shared_ptr<CodeMaker> maker_;
  const std::shared_ptr<KernelManager> graphs_;  // Null: there are no graphs of its kernels.
  const std::shared_ptr<KernelLoaders> loaders_;
  Lates late_;                        // By kernel. Null: all are loaded.
  Lates late_claims_;                 // The same of claimed forms; set before claimed_ is.
  std::uint64_t variable_bytes_ = 0;  // Taken from the quota, outside of the range.
  CudaRange::Block variables_;        // In the range.
  std::unique_ptr<ContainedLaunches> contained_;
  cuda::Module module_ = nullptr;
  std::vector<KernelInfo> kernels_;
  std::vector<VariableInfo> variable_infos_;
  std::vector<MemoryPiece> variable_memory_;
  std::vector<Function> functions_;  // By kernel; null where a pass rejected it.

  std::shared_ptr<Target> target_;             // Null when nothing is compiled for it.
  cuda::Module preemptible_module_ = nullptr;  // Where it is not module_. As the next, set before
  std::vector<PreemptibleKernel> preemptible_kernels_;  // claimed_ is, by kernel.
  std::atomic<const std::vector<PreemptibleKernel>*> claimed_ = nullptr;
};

// A client's memory and modules on a GPU.
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
  std::uint64_t AwayBytes(std::uint64_t address, std::uint64_t bytes) const override {
    return range_->AwayBytes(address, bytes);
  }
  SpaceUse use() override { return range_->use(); }
  bool IsThere(const Reach& reach) const { return range_->IsThere(reach); }
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
  // The calling thread may call the driver.
  Status Enter() const;

  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<CudaRange> range_;
  const ModuleLoading loading_;
  const ModuleRecipe recipe_;
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CUDA_MODULE_H_
