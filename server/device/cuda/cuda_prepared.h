// SPDX-License-Identifier: Apache-2.0
// Modules of a GPU in steps. A process that has nobody's memory reads and rewrites what a client
// wrote. The result is checked, compiled outside of this process, and given to the driver.

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

// The module with claimed forms beside its kernels, as text.
struct PreemptibleText {
  struct Form {
    std::string kernel, claimed;         // Names.
    std::uint32_t parameter_offset = 0;  // Of ptx::ClaimParameter.
  };
  std::string text, target;
  std::vector<Form> forms;
  // Whether the forms may be a module of their own.
  bool can_stand_apart = false;
};

// A module that can be loaded in any range of the recipe's size.
//
// What it says of itself may be a lie of its client's, about its own kernels and variables: a name
// that the driver does not find, too small a sum of bytes. Nothing in it is an address, a length of
// memory here, or a number that is used without a check.
//
// Immutable; thread-safe.
class CudaPrepared : public PreparedModule {
 public:
  // Verifies all of it. kInvalidArgument when it is not what PrepareCudaModule writes.
  static Result<std::shared_ptr<const CudaPrepared>> Take(const ModuleRecipe& recipe,
                                                          std::span<const std::byte> flat);
  CudaPrepared& operator=(const CudaPrepared&) = delete;
  ~CudaPrepared() override = default;

  // As the text says; the driver knows more.
  std::span<const KernelInfo> kernel_infos() const override { return kernels_; }
  std::span<const VariableInfo> variable_infos() const override { return variables_; }
  std::uint64_t bytes() const override;

  // What the driver gets, with zeros behind it: it reads text up to a zero.
  static constexpr std::size_t kZerosBehind = 64;
  const std::byte* image() const { return image_.data(); }
  bool has_ptx() const { return why_no_ptx_.ok(); }
  const Status& why_no_ptx() const { return why_no_ptx_; }
  // The code that runs is made of its text. A container may hold better code, of anybody's.
  bool runs_text() const { return is_text_ || is_fenced(); }
  // Whether passes keep it in its client's memory, and whether also from ending the context.
  bool is_fenced() const { return !fence_constant_.empty(); }
  bool is_contained() const { return is_contained_; }
  const std::string& fence_constant() const { return fence_constant_; }
  // Of the variables that lie in the client's range; of those that the driver places.
  std::uint64_t range_variable_bytes() const { return range_variable_bytes_; }
  std::uint64_t driver_variable_bytes() const { return driver_variable_bytes_; }
  // The content of range_variable_bytes() that begin at `base`.
  std::vector<std::byte> InitialBytes(std::uint64_t base) const;
  const std::vector<ptx::FaultPlace>& fault_places() const { return fault_places_; }
  // Null where it can have none; why, and for which kernels, is in the note.
  std::shared_ptr<const PreemptibleText> claims() const { return claims_; }
  const std::string& note() const { return note_; }
  // The claimed forms are in image().
  bool has_claims() const { return has_claims_; }

  // Its code, where a compiler stands outside of this process: what is isolated is given to no
  // other one, and a driver would compile within the load, for which all work waits. As it is where
  // the compiler rejects what may be the driver's. Null when making it takes long and
  // `may_take_long` is false.
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
  std::string_view text() const;  // Up to a zero, as the driver reads it.
  std::shared_ptr<const CudaPrepared> WithCode(std::span<const std::byte> code,
                                               bool has_claims) const;

  std::vector<std::byte> image_;
  Status why_no_ptx_;
  bool is_text_ = false;  // The client's image was: no container, which may hold better code.
  bool is_compiled_ = false, has_claims_ = false, is_contained_ = false;
  std::string target_;
  std::string fence_constant_;
  std::uint64_t range_variable_bytes_ = 0, driver_variable_bytes_ = 0;
  VariableContents contents_;
  std::vector<VariableInfo> variables_;  // kElsewhere: the driver places it.
  std::vector<ptx::FaultPlace> fault_places_;
  std::vector<KernelInfo> kernels_;
  std::shared_ptr<const PreemptibleText> claims_;
  std::string note_;
};

// Reads an image, PTX text, a fatbin or a cubin, and applies the recipe's passes: all that touches
// what the client wrote. What is written so far means nothing when it fails.
Status PrepareCudaModule(const ModuleRecipe& recipe, std::span<const std::byte> image,
                         FlatWriter& to);

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CUDA_PREPARED_H_
