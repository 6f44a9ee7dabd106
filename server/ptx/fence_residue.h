// SPDX-License-Identifier: Apache-2.0
// Zeroes memory at the entry of a function, so that nothing is seen there that other kernels left.

#ifndef GPUSHARED_SERVER_PTX_FENCE_RESIDUE_H_
#define GPUSHARED_SERVER_PTX_FENCE_RESIDUE_H_

#include <vector>

#include "server/ptx/editor.h"
#include "server/ptx/module.h"

namespace gpushared::ptx {

// The calling thread's variable `local`, whole.
void ZeroLocal(FunctionEditor& editor, const Variable& local);

// Each variable of `shared` (static ones), and all dynamic shared memory, of which `dynamic` is the
// start: by all threads of the block together, with a barrier behind it. Kernels only.
void ZeroShared(FunctionEditor& editor, const std::vector<Variable>& shared,
                const Variable& dynamic);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_FENCE_RESIDUE_H_
