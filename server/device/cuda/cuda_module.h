// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_CUDA_MODULE_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_CUDA_MODULE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpushared/result.h"

#include "server/device/cuda/cuda_memory.h"
#include "server/device/device.h"

namespace gpushared::device::cuda {

// A client's instance of a module. Its variables lie where the driver puts them, outside of the
// client's range, or, fenced, at the top of it; those that its PTX declares are counted against the
// quota.
//
// Immutable; thread-safe. Destroyed off the device thread, when no work uses it: unloading may
// wait.
class CudaModule : public device::Module {
 public:
  // PTX text, a fatbin or a cubin; the driver compiles what needs it, here and now, so that no
  // launch does. Not on the device thread. Machine code is taken as it is: the driver's checks of
  // it are all there are. What is to be fenced needs PTX, of which `passes` make another one.
  static Result<std::shared_ptr<const device::Module>> Load(std::span<const std::byte> image,
                                                            CudaContext& context,
                                                            std::shared_ptr<CudaRange> range,
                                                            ModulePasses passes);
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;
  ~CudaModule() override;

  std::span<const KernelInfo> kernels() const override { return kernels_; }
  // Of a kernel that is supported.
  Function function(std::uint32_t kernel) const { return functions_[kernel]; }

 private:
  struct Image;
  CudaModule(CudaContext& context, std::shared_ptr<CudaRange> range)
      : context_(context), range_(std::move(range)) {}
  Status LoadImage(const Image& image);
  Status Fence(Image& image, ModulePasses passes);
  Status WriteVariables(const Image& image);
  Status FindKernels(const Image& image);
  Status FindFunction(const std::string& name, Function* function);
  Status NamesFromDriver(std::vector<std::string>& names);
  Status Describe(const Image& image, Function function, KernelInfo& info);
  Status FindParameters(const Image& image, Function function, KernelInfo& info);
  Status OptIntoSharedMemory(Function function, const KernelInfo& info);

  CudaContext& context_;  // Outlived by it: the range keeps the context alive.
  const std::shared_ptr<CudaRange> range_;
  std::uint64_t variable_bytes_ = 0;  // Taken from the quota, outside of the range.
  CudaRange::Block variables_;        // In the range.
  cuda::Module module_ = nullptr;
  std::vector<KernelInfo> kernels_;
  std::vector<Function> functions_;  // By kernel; null where a pass refused it.
};

// A client's memory and modules on a GPU.
class CudaSpace : public Space {
 public:
  CudaSpace(std::shared_ptr<CudaContext> context, std::unique_ptr<CudaRange> range,
            ModulePasses passes)
      : context_(std::move(context)), range_(std::move(range)), passes_(passes) {}
  CudaSpace(const CudaSpace&) = delete;
  CudaSpace& operator=(const CudaSpace&) = delete;
  ~CudaSpace() override = default;

  std::uint64_t base() const override { return range_->mapped().base; }
  std::uint64_t range_bytes() const override { return range_->mapped().range_bytes; }
  Result<std::uint64_t> Resize(std::uint64_t mapped_bytes) override;
  Result<std::shared_ptr<const device::Module>> LoadModule(
      std::span<const std::byte> image) override;
  MappedRange mapped() const { return range_->mapped(); }

 private:
  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<CudaRange> range_;
  const ModulePasses passes_;
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CUDA_MODULE_H_
