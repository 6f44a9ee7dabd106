// SPDX-License-Identifier: Apache-2.0
// One function of a module that is fenced; fence.h tells what for.

#ifndef GPUSHARED_SERVER_PTX_PASSES_FENCE_FUNCTION_H_
#define GPUSHARED_SERVER_PTX_PASSES_FENCE_FUNCTION_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "server/ptx/analysis/variable_layout.h"
#include "server/ptx/text/editor.h"
#include "server/ptx/text/module.h"

namespace gpushared::ptx {

struct SharedVariable {
  std::uint64_t bytes = 0;
  std::uint32_t alignment = 1;
};

// Facts about the module that its functions need.
struct FenceFacts {
  bool contains = false;        // contain.h
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

// The instruction that makes a generic address of a parameter; null when the body has none. Such an
// address means something in its own kernel alone, and where that passes it to.
const Instruction* MakesGenericParameter(const Function& function);

// Rewrites the body; returns why it can't be done ("line 12: ..."), or "". The function is not to
// be used after a failure. `shared_begin`: set to the register in which a kernel wants the start of
// its shared memory, if it wants it (ZeroShared).
std::string FenceFunction(ModuleEditor& names, Function& function, const FenceFacts& facts,
                          std::string& shared_begin);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_FENCE_FUNCTION_H_
