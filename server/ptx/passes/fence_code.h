// SPDX-License-Identifier: Apache-2.0
// Emits instructions that replace an address computed by a function by an address that the function
// may access. Also merges the local variables into the array to which local addresses are confined.

#ifndef GPUSHARED_SERVER_PTX_PASSES_FENCE_CODE_H_
#define GPUSHARED_SERVER_PTX_PASSES_FENCE_CODE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/ptx/text/editor.h"
#include "common/ptx/text/module.h"
#include "server/ptx/analysis/memory_access.h"
#include "server/ptx/analysis/value_flow.h"
#include "server/ptx/analysis/variable_layout.h"

namespace gpushared::ptx {

struct SharedVariable {
  std::uint64_t bytes = 0;
  std::uint32_t alignment = 1;
};

// Facts about a module that are needed to fence its functions.
struct FenceFacts {
  bool contains = false;        // Whether the pass is Contain instead of Fence.
  std::uint32_t mask_high = 0;  // Bits of the high word in which addresses of the range differ.
  std::string constant;         // Variable that holds a FenceConstant.
  std::string dynamic_shared;   // Variable at the beginning of dynamic shared memory.
  std::unordered_map<std::string, VariablePlacement> moved;
  std::uint64_t variables_alignment = 1;  // Alignment of the variables' address.
  // Constants that are not moved, with their sizes.
  std::unordered_map<std::string, std::uint64_t> constants;
  std::unordered_map<std::string, SharedVariable> shared;  // Static shared variables of the module.
  std::unordered_set<std::string> foreign;                 // Variables of other modules.
  bool constants_move = false;
  // Whether some function uses the address of a moved variable for more than an access, or a
  // variable contains such an address. `variables_bytes`: total size of the moved variables.
  bool variables_escape = false;
  std::uint64_t variables_bytes = 0;
  // Whether some function creates generic addresses of shared or local memory.
  bool has_generic_shared = false;
  bool has_generic_local = false;
};

// Upper limit for the shared memory that one instruction of contained code accesses, in bytes.
inline constexpr std::uint32_t kSharedReserveBytes = 128;

// Local variables of a fenced function, merged to one array so that a single bound applies to all
// pointers to them.
//
// Borrows the flow. Thread-compatible.
class FenceLocals {
 public:
  explicit FenceLocals(const ValueFlow& flow) : flow_(flow) {}

  // Must be called once, before the other functions. Declares the array, aligned to at least
  // `alignment`, unless a variable of the function can serve as the array.
  void Merge(ModuleEditor& names, FunctionEditor& editor, std::uint32_t alignment);

  // Null if the function has no local variables.
  const Variable* array() const { return array_ ? &*array_ : nullptr; }
  // Whether the array is an additional variable.
  bool merges() const { return merges_; }

  struct Place {
    std::int64_t offset = 0;  // Offset in the array.
    std::uint64_t bytes = 0;
  };
  // Returns the place of the variable with this name, as in ControlFlow, or null.
  const Place* Find(const std::string& name) const;

  // Returns the value of register `r` at instruction `k` as an offset in the array. Returns nothing
  // unless the value is, on every path, the address of a local variable plus constants.
  std::optional<std::int64_t> OffsetIn(std::uint32_t r, std::uint32_t k) const;

 private:
  std::optional<std::int64_t> OffsetIn(std::uint32_t r, std::uint32_t k, int chain) const;

  const ValueFlow& flow_;
  std::optional<Variable> array_;
  bool merges_ = false;
  std::unordered_map<std::string, Place> places_;
};

// Inserts instructions before statement `at` of the function. Values that several of these
// instructions use are loaded at the function's entry, by code that Finish() adds. Alignments are
// powers of two, and 1 if irrelevant. Borrows its arguments.
class FenceCode {
 public:
  FenceCode(FunctionEditor& editor, const FenceFacts& facts) : editor_(editor), facts_(facts) {}

  void Add(std::size_t at, std::string_view spelling, std::vector<Operand> operands);
  // Returns a register with base + addend, which is `base` itself if `addend` is 0.
  std::string Sum(std::size_t at, const std::string& base, std::int64_t addend);

  // Returns the address in the client's range with the same offset. If contained: aligned, and at
  // most the limit, or in one of the module's variables.
  std::string Mask(std::size_t at, const std::string& address, std::uint32_t alignment);
  // Like Mask, but preserves addresses in the windows of shared memory, local memory and
  // parameters, as far as the access supports them. Shared addresses are bounded by the hardware
  // (if contained: by the block's size), local ones by the declared array, and those of parameters
  // by the kernel's own parameters.
  std::string MaskOutsideWindows(std::size_t at, const std::string& address,
                                 const MemoryAccess& access, std::uint32_t alignment);

  // Declares that the kernel creates generic addresses of its parameters. The parameters occupy
  // `bytes` bytes, beginning with the parameter `first`.
  void SetParameters(std::string first, std::uint64_t bytes) {
    first_parameter_ = std::move(first);
    parameter_bytes_ = bytes;
  }

  // Declares that the function is a kernel, for which ZeroShared provides the start of its shared
  // memory. In a .func, which several kernels may call, this start is unknown.
  void SetKernel() { is_kernel_ = true; }

  // Sets the array that holds all local variables.
  void SetLocal(const Variable* local) { local_ = local; }
  // Returns `word` + `immediate` if `bytes` bytes at that address are in the array; otherwise the
  // address of some `bytes` bytes in the array. The array must have at least that many bytes.
  std::string ClampLocal(std::size_t at, const std::string& word, std::int64_t immediate,
                         std::uint32_t bytes, std::uint32_t alignment);
  // Like ClampLocal, but with the block's shared memory instead of the array; `bytes` is at most
  // kSharedReserveBytes. In a .func the result may be below the block's memory, where newer
  // hardware has reserved memory.
  std::string ClampShared(std::size_t at, const std::string& word, std::int64_t immediate,
                          std::uint32_t bytes, std::uint32_t alignment);
  // Like ClampLocal, but with the `size` bytes of a kernel's parameters instead of the array;
  // `first` is the first parameter. The result has 64 bits.
  std::string ClampParameter(std::size_t at, const std::string& first, std::uint64_t size,
                             const std::string& address, std::int64_t immediate,
                             std::uint32_t bytes, std::uint32_t alignment);

  std::string NewWord() { return editor_.NewRegister("b32"); }
  std::string NewAddress() { return editor_.NewRegister("b64"); }
  std::string Narrow(std::size_t at, const std::string& wide);
  // Returns the register with the end of the client's memory. Contained code only.
  const std::string& Limit();
  // Return the registers with the address of the module's variables, and with the end of the
  // block's shared memory (32 bits).
  const std::string& Variables();
  const std::string& SharedEnd();
  // Register to receive the start of shared memory; empty if unused.
  const std::string& shared_begin() const { return shared_begin_; }
  bool has_clamped_local() const { return !local_base_.empty(); }

  void Finish();

 private:
  std::string Aligned(std::size_t at, std::string word, std::uint32_t alignment);
  std::string BelowLimit(std::size_t at, const std::string& masked);
  void LoadBase();
  void LoadConstant(const std::string& name, std::string_view type, std::size_t member);

  FunctionEditor& editor_;
  const FenceFacts& facts_;
  const Variable* local_ = nullptr;
  std::string first_parameter_;
  std::uint64_t parameter_bytes_ = 0;  // 0 without generic addresses of parameters.
  bool is_kernel_ = false;
  // Registers loaded at the entry; empty until they are used.
  std::string base_, limit_, variables_, local_base_, shared_begin_, shared_end_;
  std::uint32_t masks_ = 0;
  std::map<std::uint32_t, std::string> shared_last_;  // By the number of bytes of the access.
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_FENCE_CODE_H_
