// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_CPU_SPACE_H_
#define GPUSHARED_SERVER_DEVICE_CPU_CPU_SPACE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpushared/result.h"

#include "server/device/cpu/address_range.h"
#include "server/device/cpu/claimed_launch.h"
#include "server/device/cpu/contained_runs.h"
#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/executor/program.h"
#include "server/device/device.h"
#include "server/device/module_passes.h"

namespace gpushared::device {

// A loaded module with its own instance of every module variable.
//
// Immutable; thread-safe. Uses the memory of its space, which must outlive it.
class CpuModule : public Module {
 public:
  // How a kernel runs that the claim pass has transformed.
  struct ClaimedForm {
    const executor::Program* program = nullptr;
    std::uint32_t parameter_offset = 0;  // Of ptx::ClaimParameter.
  };

  // Parses, applies `passes`, places the variables in `range` and decodes.
  static Result<std::shared_ptr<const Module>> Load(std::span<const std::byte> image,
                                                    AddressRange& range, ModulePasses passes);
  CpuModule(const CpuModule&) = delete;
  CpuModule& operator=(const CpuModule&) = delete;
  ~CpuModule() override;

  std::span<const KernelInfo> kernels() const override { return kernels_; }
  // Only of kernels that are supported.
  const executor::Program& program(std::uint32_t kernel) const { return *programs_[kernel]; }
  // Null when the kernel runs as it is.
  const ClaimedForm* claimed(std::uint32_t kernel) const {
    return claimed_[kernel].program != nullptr ? &claimed_[kernel] : nullptr;
  }
  // Null unless it was loaded with claims.
  ClaimSlots* slots() const { return slots_.get(); }
  // Null unless it was loaded to be contained.
  ContainedRuns* contained() const { return contained_.get(); }
  // What its kernels may touch: the client's mapped memory and this module's variables.
  executor::MemoryWindow window() const;

 private:
  CpuModule(AddressRange& range, const AddressRange::Block& variables)
      : range_(range), variables_(variables) {}
  // What the kernels find in memory before they first run.
  void WriteVariables(const PassedModule& passed, const executor::ModuleLayout& layout,
                      std::uint64_t layout_address) const;
  // Where things lie in its block, from its start.
  struct Places {
    // In pages, as alignments go: what fences moved out of the text lies before it.
    std::uint64_t layout = 0;
    std::uint64_t contained = 0;  // Words of ContainedRuns.
    std::uint64_t slots = 0;      // Those of claimed launches.
    std::uint64_t end = 0;
  };
  static Places PlacesOf(const PassedModule& passed, const executor::ModuleLayout& layout,
                         bool claims);
  // Fills in kernels_, programs_ and claimed_.
  void ListKernels(const std::vector<PassedKernel>& kernels);

  AddressRange& range_;
  const AddressRange::Block variables_;
  std::unique_ptr<const executor::ModuleImage> image_;
  std::vector<KernelInfo> kernels_;
  // By kernel; those of the client, without the forms that passes added. Null where a pass
  // refused it.
  std::vector<const executor::Program*> programs_;
  std::vector<ClaimedForm> claimed_;
  std::unique_ptr<ClaimSlots> slots_;
  std::unique_ptr<ContainedRuns> contained_;
};

// Space of the cpu device. Device addresses are addresses of this process.
class CpuSpace : public Space {
 public:
  CpuSpace(std::unique_ptr<AddressRange> range, ModulePasses passes)
      : range_(std::move(range)), passes_(passes) {}
  CpuSpace(const CpuSpace&) = delete;
  CpuSpace& operator=(const CpuSpace&) = delete;
  ~CpuSpace() override = default;

  std::uint64_t base() const override { return range_->base(); }
  std::uint64_t range_bytes() const override { return range_->bytes(); }
  Result<std::uint64_t> Resize(std::uint64_t mapped_bytes) override {
    return range_->Resize(mapped_bytes);
  }
  Result<std::shared_ptr<const Module>> LoadModule(std::span<const std::byte> image) override {
    return CpuModule::Load(image, *range_, passes_);
  }
  const AddressRange& range() const { return *range_; }

 private:
  const std::unique_ptr<AddressRange> range_;
  const ModulePasses passes_;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_CPU_SPACE_H_
