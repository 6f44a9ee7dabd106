// SPDX-License-Identifier: Apache-2.0
// Zeroes whatever a function could read that other kernels left.

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

// The calling thread's variable `local`, whole.
void ZeroLocal(FunctionEditor& editor, const Variable& local);

// Shared memory from the first of `variables` (static ones) to the end of the dynamic part, of
// which `dynamic` is the start, aligned to kZeroedBytes: by all threads of the block together, with
// a barrier behind it. Kernels only. Without `has_tail` the last size % kZeroedBytes bytes of the
// dynamic part are left out. `begin`: a register that gets the start of it all; empty: none.
void ZeroShared(FunctionEditor& editor, const std::vector<std::string>& variables,
                const std::string& dynamic, bool has_tail, const std::string& begin);

// Whatever the function may read unwritten: registers, bytes of parameters that calls pass,
// results. `flow` is the function's, and `statements` has the place of each of its instructions in
// the body. Returns why it can't be done ("line 12: ..."), or "".
std::string ZeroUnwritten(FunctionEditor& editor, const Function& function, const ValueFlow& flow,
                          const std::vector<std::size_t>& statements);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_FENCE_RESIDUE_H_
