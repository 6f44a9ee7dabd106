// SPDX-License-Identifier: Apache-2.0
// Modules of the cpu device in two steps. A process that can do no harm reads and decodes what a
// client wrote, to bytes. The worker checks those bytes and places them in the client's range.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_CPU_PREPARED_H_
#define GPUSHARED_SERVER_DEVICE_CPU_CPU_PREPARED_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/device.h"
#include "server/device/flat.h"
#include "server/device/flat_module.h"
#include "server/executor/program.h"
#include "server/ptx/passes/fence.h"

namespace gpushared::device {

// A module that can be placed in any range of the recipe's size.
//
// Immutable; thread-safe.
class CpuPrepared : public PreparedModule {
 public:
  struct Kernel {
    KernelInfo info;
    const executor::Program* program = nullptr;  // Null where a pass refused the kernel.
    // How it runs where the claim pass has transformed it; null when it runs as it is.
    const executor::Program* claimed = nullptr;
    std::uint32_t claim_offset = 0;  // Of ptx::ClaimParameter in the claimed form's parameters.
  };
  // Where things lie in the block of a module, from its start.
  struct Places {
    // In pages, as alignments go: what fences moved out of the text lies before it.
    std::uint64_t layout = 0;
    std::uint64_t contained = 0;  // Words of ContainedRuns.
    std::uint64_t slots = 0;      // Those of claimed launches.
    std::uint64_t end = 0;
  };
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

  // Verifies all of it. kInvalidArgument when it is not what Prepare writes, whatever it is.
  static Result<std::shared_ptr<const CpuPrepared>> Take(const ModuleRecipe& recipe,
                                                         std::span<const std::byte> flat);
  CpuPrepared(const CpuPrepared&) = delete;
  CpuPrepared& operator=(const CpuPrepared&) = delete;
  ~CpuPrepared() override = default;

  std::span<const KernelInfo> kernel_infos() const override { return infos_; }
  std::span<const VariableInfo> variable_infos() const override { return variables_; }
  std::uint64_t bytes() const override { return bytes_; }

  const std::vector<Kernel>& kernels() const { return kernels_; }
  const Places& places() const { return places_; }
  const VariableContents& contents() const { return contents_; }  // Of the block.
  // Where in the block a ptx::FenceConstant goes; kNowhere: none.
  std::uint64_t fence_constant() const { return fence_constant_; }
  bool is_contained() const { return is_contained_; }
  const std::vector<ptx::FaultPlace>& fault_places() const { return fault_places_; }

 private:
  CpuPrepared() = default;
  Status TakePlaces(const ModuleRecipe& recipe, FlatReader& from);
  Status TakeKernels(const ModuleRecipe& recipe, FlatReader& from);
  // Null for kNoProgram; false when there is no such program.
  bool FindProgram(std::uint32_t number, const executor::Program** program) const;
  void CountBytes();

  Places places_;
  bool is_contained_ = false;
  std::uint64_t fence_constant_ = kNowhere;
  std::vector<ptx::FaultPlace> fault_places_;
  VariableContents contents_;
  std::vector<VariableInfo> variables_;
  std::vector<std::unique_ptr<const executor::Program>> programs_;
  std::vector<Kernel> kernels_;
  std::vector<KernelInfo> infos_;  // Parallel to kernels_.
  std::uint64_t bytes_ = 0;
};

// Reads an image, PTX text or a fatbin, applies the recipe's passes and decodes: all that touches
// what the client wrote. What is written so far means nothing when it fails.
Status PrepareCpuModule(const ModuleRecipe& recipe, std::span<const std::byte> image,
                        FlatWriter& to);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_CPU_PREPARED_H_
