// SPDX-License-Identifier: Apache-2.0
// Turns an address of a function into one it may use: the instructions, and the array of locals
// that bounds some of them.

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

// Facts about the module that its functions need.
struct FenceFacts {
  bool contains = false;        // Contain, not Fence.
  std::uint32_t mask_high = 0;  // Of an address in the range: the bits of its high word that vary.
  std::string constant;         // Variable that holds a FenceConstant.
  std::string dynamic_shared;   // Variable that dynamic shared memory begins with.
  std::unordered_map<std::string, VariablePlacement> moved;
  std::uint64_t variables_alignment = 1;                     // Alignment of the variables' place.
  std::unordered_map<std::string, std::uint64_t> constants;  // Those that stay, and their bytes.
  std::unordered_map<std::string, SharedVariable> shared;    // Static ones, of the module.
  std::unordered_set<std::string> foreign;                   // Variables of other modules.
  bool constants_move = false;
  // Some function makes addresses of moved variables beside those in its accesses, or a variable
  // holds one; `variables_bytes` is what they take together.
  bool variables_escape = false;
  std::uint64_t variables_bytes = 0;
  // Some function makes generic addresses of shared or of local memory.
  bool has_generic_shared = false;
  bool has_generic_local = false;
};

// More than contained code accesses at once of shared memory.
inline constexpr std::uint32_t kSharedRoomBytes = 128;

// The local variables of a fenced function as one array, so that one bound holds for whatever
// points into them.
//
// Borrows the flow. Thread-compatible.
class FenceLocals {
 public:
  explicit FenceLocals(const ValueFlow& flow) : flow_(flow) {}

  // To be called first, and once. Declares the array, aligned to at least `alignment`, where no
  // variable of the function's own can serve as it.
  void Merge(ModuleEditor& names, FunctionEditor& editor, std::uint32_t alignment);

  // Null when the function has no local variables.
  const Variable* array() const { return array_ ? &*array_ : nullptr; }
  // Whether the array is none of the function's own variables.
  bool merges() const { return merges_; }

  struct Place {
    std::int64_t offset = 0;  // In the array.
    std::uint64_t bytes = 0;
  };
  // Of the variable of this name, as ControlFlow has it; null when there is none.
  const Place* Find(const std::string& name) const;

  // What register `r` holds at instruction `k`, counted from the array's start; nothing when that
  // is not the same for every way to get there.
  std::optional<std::int64_t> OffsetIn(std::uint32_t r, std::uint32_t k) const;

 private:
  std::optional<std::int64_t> OffsetIn(std::uint32_t r, std::uint32_t k, int chain) const;

  const ValueFlow& flow_;
  std::optional<Variable> array_;
  bool merges_ = false;
  std::unordered_map<std::string, Place> places_;
};

// Instructions go before statement `at` of the function; what all of them share is loaded at its
// entry by Finish(). Alignments are powers of two, and 1 where they do not matter. Borrows all it
// is made of.
class FenceCode {
 public:
  FenceCode(FunctionEditor& editor, const FenceFacts& facts) : editor_(editor), facts_(facts) {}

  void Add(std::size_t at, std::string_view spelling, std::vector<Operand> operands);
  // The register itself, or a new one.
  std::string Sum(std::size_t at, const std::string& base, std::int64_t addend);

  // The address in the client's range that has the same place in it. Contained: aligned, and at
  // most the limit, or one of the module's variables.
  std::string Mask(std::size_t at, const std::string& address, std::uint32_t alignment);
  // As Mask, but what lies in the windows of shared and local memory and of parameters stays there,
  // if the access takes it: the hardware bounds the first (contained: the block's size), the
  // declared array the second, and the kernel's own parameters the third.
  std::string MaskOutsideWindows(std::size_t at, const std::string& address,
                                 const MemoryAccess& access, std::uint32_t alignment);

  // The kernel makes generic addresses of its parameters, of `bytes` bytes behind the first one.
  void SetParameters(std::string first, std::uint64_t bytes) {
    first_parameter_ = std::move(first);
    parameter_bytes_ = bytes;
  }

  // It is a kernel, of which ZeroShared knows where its shared memory begins; of a .func, which
  // several kernels may call, nobody does.
  void SetKernel() { is_kernel_ = true; }

  // The array that holds all local variables.
  void SetLocal(const Variable* local) { local_ = local; }
  // `word` + `immediate`, when that lies in the array with `bytes` behind it; else some place in
  // it. The array has at least as many.
  std::string ClampLocal(std::size_t at, const std::string& word, std::int64_t immediate,
                         std::uint32_t bytes, std::uint32_t alignment);
  // The same with the block's shared memory, of at most kSharedRoomBytes. In kernels; in a .func it
  // may lie before that, where newer hardware has memory of its own.
  std::string ClampShared(std::size_t at, const std::string& word, std::int64_t immediate,
                          std::uint32_t bytes, std::uint32_t alignment);
  // The same with the parameters of a kernel, of which `first` is the first; 64 bits wide.
  std::string ClampParameter(std::size_t at, const std::string& first, std::uint64_t size,
                             const std::string& address, std::int64_t immediate,
                             std::uint32_t bytes, std::uint32_t alignment);

  std::string NewWord() { return editor_.NewRegister("b32"); }
  std::string NewAddress() { return editor_.NewRegister("b64"); }
  std::string Narrow(std::size_t at, const std::string& wide);
  // Contained: the end of the client's memory.
  const std::string& Limit();
  // Where the module's variables lie, and where the block's shared memory ends (32 bits).
  const std::string& Variables();
  const std::string& SharedEnd();
  // The register that is to have that; empty: none.
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
  std::uint64_t parameter_bytes_ = 0;  // 0: there are no generic addresses of them.
  bool is_kernel_ = false;
  // Registers loaded at the entry; empty as long as nothing needs them.
  std::string base_, limit_, variables_, local_base_, shared_begin_, shared_end_;
  std::uint32_t masks_ = 0;
  std::map<std::uint32_t, std::string> shared_last_;  // By bytes behind it.
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_FENCE_CODE_H_
