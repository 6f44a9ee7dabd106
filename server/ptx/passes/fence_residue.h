// SPDX-License-Identifier: Apache-2.0
// Zeroes everything that a function could read from earlier kernels.

#ifndef GPUSHARED_SERVER_PTX_PASSES_FENCE_RESIDUE_H_
#define GPUSHARED_SERVER_PTX_PASSES_FENCE_RESIDUE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/ptx/text/editor.h"
#include "common/ptx/text/module.h"
#include "server/ptx/analysis/value_flow.h"

namespace gpushared::ptx {

inline constexpr std::uint32_t kZeroedBytes = 16;

// Zeroes the calling thread's variable `local`.
void ZeroLocal(FunctionEditor& editor, const Variable& local);

// Zeroes shared memory from the first of `variables` (static ones) to the end of the dynamic part,
// which starts at `dynamic`, aligned to kZeroedBytes. All threads of the block do this together,
// followed by a barrier. Kernels only. Without `has_tail` the last size % kZeroedBytes bytes of the
// dynamic part are skipped. `begin`: register that receives the start; may be empty.
void ZeroShared(FunctionEditor& editor, const std::vector<std::string>& variables,
                const std::string& dynamic, bool has_tail, const std::string& begin);

// Zeroes everything that the function may read unwritten: registers, bytes of call parameters,
// results and the carry flag. `flow` is the function's, and `statements` has the index of each of
// its instructions in the body. Returns the reason why zeroing is not possible ("line 12: ..."), or
// "" if it is possible.
std::string ZeroUnwritten(FunctionEditor& editor, const Function& function, const ValueFlow& flow,
                          const std::vector<std::size_t>& statements);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_FENCE_RESIDUE_H_
