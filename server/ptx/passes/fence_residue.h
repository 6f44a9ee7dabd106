// SPDX-License-Identifier: Apache-2.0
// Zeroes memory at the entry of a function, so that nothing is seen there that other kernels left.

#ifndef GPUSHARED_SERVER_PTX_PASSES_FENCE_RESIDUE_H_
#define GPUSHARED_SERVER_PTX_PASSES_FENCE_RESIDUE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/ptx/text/editor.h"
#include "server/ptx/text/module.h"

namespace gpushared::ptx {

inline constexpr std::uint32_t kZeroedBytes = 16;

// The calling thread's variable `local`, whole.
void ZeroLocal(FunctionEditor& editor, const Variable& local);

// Shared memory from the first of `variables` (static ones) to the end of the dynamic part, of
// which `dynamic` is the start, aligned to kZeroedBytes: by all threads of the block together, with
// a barrier behind it. Kernels only. Without `has_tail` the last size % kZeroedBytes bytes of the
// dynamic part are left out.
void ZeroShared(FunctionEditor& editor, const std::vector<std::string>& variables,
                const std::string& dynamic, bool has_tail);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_FENCE_RESIDUE_H_
