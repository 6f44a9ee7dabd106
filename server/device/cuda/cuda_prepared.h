// SPDX-License-Identifier: Apache-2.0
// Staged loading of modules for a GPU. An unprivileged process parses and rewrites the client's
// image. The worker validates the result, has it compiled in another process, and passes it to the
// driver.

#ifndef GPUSHARED_SERVER_DEVICE_CUDA_CUDA_PREPARED_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_CUDA_PREPARED_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/cuda/code_maker.h"
#include "server/device/device.h"
#include "server/device/flat.h"
#include "server/device/flat_module.h"
#include "server/ptx/passes/fence.h"

namespace gpushared::device::cuda {

// Text of the module with preemptible forms alongside its kernels.
struct PreemptibleText {
  struct Form {
    std::string kernel, claimed;         // Names.
    std::uint32_t parameter_offset = 0;  // Offset of ptx::ClaimParameter.
  };
  std::string text, target;
  std::vector<Form> forms;
  // Whether the forms can be loaded as a separate module.
  bool is_separable = false;
};

// A module that can be loaded in any range of the recipe's size.
//
// The descriptions of the client's own kernels and variables are untrusted: a malicious client may
// have forged names that the driver does not find, or sizes that are too small. The module contains
// no addresses and no lengths of memory of this process, and every number is validated before it is
// used.
//
// Immutable; thread-safe.
class CudaPrepared : public PreparedModule {
 public:
  // Validates everything. Fails with kInvalidArgument for bytes that PrepareCudaModule does not
  // write.
  static Result<std::shared_ptr<const CudaPrepared>> Take(const ModuleRecipe& recipe,
                                                          std::span<const std::byte> flat);
  CudaPrepared& operator=(const CudaPrepared&) = delete;
  ~CudaPrepared() override = default;

  // Derived from the PTX text. The driver adds further information when it loads the module.
  std::span<const KernelInfo> kernel_infos() const override { return kernels_; }
  std::span<const VariableInfo> variable_infos() const override { return variables_; }
  std::uint64_t bytes() const override;

  // The image is followed by zeros in memory, because the driver reads text up to a zero.
  static constexpr std::size_t kTrailingZeros = 64;
  const std::byte* image() const { return image_.data(); }
  bool has_ptx() const { return why_no_ptx_.ok(); }
  const Status& why_no_ptx() const { return why_no_ptx_; }
  // Whether the executed code is made from the text. A container may contain faster code from
  // another compiler.
  bool runs_text() const { return is_text_ || is_fenced(); }
  // Whether passes confine the module's kernels to the memory of their client.
  bool is_fenced() const { return !fence_constant_.empty(); }
  // Whether passes also prevent the kernels from ending the context.
  bool is_contained() const { return is_contained_; }
  const std::string& fence_constant() const { return fence_constant_; }
  // Size of the variables inside the client's range, and of those that the driver places.
  std::uint64_t range_variable_bytes() const { return range_variable_bytes_; }
  std::uint64_t driver_variable_bytes() const { return driver_variable_bytes_; }
  // Initial contents of the variables inside the range, if they are placed at `base`.
  std::vector<std::byte> InitialBytes(std::uint64_t base) const;
  const std::vector<ptx::FaultPlace>& fault_places() const { return fault_places_; }
  // Null if the module cannot have preemptible forms. note() gives the reason, and names the
  // kernels without a preemptible form.
  std::shared_ptr<const PreemptibleText> claims() const { return claims_; }
  const std::string& note() const { return note_; }
  // Whether the preemptible forms are part of image().
  bool has_claims() const { return has_claims_; }

  // Returns the module with machine code from the external compiler. The driver would compile
  // during the load, which delays all work; while there is an external compiler, the driver must
  // not compile modules of isolated clients at all.
  // If the compiler rejects a module that the driver may compile, returns the module unchanged.
  // Returns null if this would take long and `may_take_long` is false.
  static Result<std::shared_ptr<const CudaPrepared>> Compile(
      std::shared_ptr<const CudaPrepared> module, CodeMaker& maker, bool may_take_long);

 private:
  CudaPrepared() = default;
  CudaPrepared(const CudaPrepared&) = default;
  Status TakeReason(FlatReader& from);
  Status TakeFence(const ModuleRecipe& recipe, FlatReader& from);
  Status TakeKernels(FlatReader& from);
  Status TakeClaims(const ModuleRecipe& recipe, FlatReader& from);
  Status TakeImage(const ModuleRecipe& recipe, FlatReader& from);
  void Assign(std::span<const std::byte> image);
  std::string_view text() const;  // Ends at a zero, as in the driver.
  std::shared_ptr<const CudaPrepared> WithCode(std::span<const std::byte> code,
                                               bool has_claims) const;

  std::vector<std::byte> image_;
  Status why_no_ptx_;
  // Whether the client's image was plain text. A container may hold machine code that is faster.
  bool is_text_ = false;
  bool is_compiled_ = false, has_claims_ = false, is_contained_ = false;
  std::string target_;
  std::string fence_constant_;
  std::uint64_t range_variable_bytes_ = 0, driver_variable_bytes_ = 0;
  VariableContents contents_;
  std::vector<VariableInfo> variables_;  // Address kElsewhere: placed by the driver.
  std::vector<ptx::FaultPlace> fault_places_;
  std::vector<KernelInfo> kernels_;
  std::shared_ptr<const PreemptibleText> claims_;
  std::string note_;
};

// Parses PTX text, a fatbin or a cubin, and applies the recipe's passes. No later stage in this
// server parses the client's image. The output is meaningless if the call fails.
Status PrepareCudaModule(const ModuleRecipe& recipe, std::span<const std::byte> image,
                         FlatWriter& to);

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CUDA_PREPARED_H_
