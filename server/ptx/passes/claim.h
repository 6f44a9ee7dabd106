// SPDX-License-Identifier: Apache-2.0
// Makes a kernel preemptible between two thread blocks: each hardware block executes a block that
// it claims from a counter, instead of the one that it was assigned.

#ifndef GPUSHARED_SERVER_PTX_PASSES_CLAIM_H_
#define GPUSHARED_SERVER_PTX_PASSES_CLAIM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Additional last parameter of a preemptible kernel. Device addresses refer to global memory that
// the kernel can access; the words there are 32 bits wide and aligned.
//
// counter - base is the number of claimed blocks. Before the first launch it is 0, or the block to
// resume at, so the counter need not be reset for a launch. A hardware block ends at once if stop -
// epoch, as a signed number, is not negative. Writing an epoch to the stop word therefore stops the
// launches of that epoch and of all earlier ones, so the word is never cleared. A hardware block
// that is not stopped claims block counter++ - base, or ends at once if that number is not below
// `blocks`. So the claimed blocks are exactly [0, min(counter - base, blocks)), and every claimed
// block runs to its end.
struct ClaimParameter {
  std::uint64_t counter = 0;  // Device address.
  std::uint64_t stop = 0;     // Device address.
  std::uint32_t epoch = 0;
  std::uint32_t blocks = 0;  // Size of the client's grid: x * y * z, below kClaimBlocksMax.
  std::uint32_t grid_x = 1;
  std::uint32_t grid_y = 1;
  std::uint32_t grid_z = 1;
  std::uint32_t base = 0;  // Modulo 2^32, like the counter.
};
static_assert(sizeof(ClaimParameter) == 40);

inline constexpr std::uint32_t kClaimParameterAlignment = 8;
// Dynamic shared memory in bytes that a preemptible launch needs in addition.
inline constexpr std::uint32_t kClaimSharedBytes = 16;
// Grids with this many blocks or more are not preemptible.
inline constexpr std::uint64_t kClaimBlocksMax = std::uint64_t{1} << 31;

struct PreemptibleKernel {
  std::string kernel;
  std::string claimed;  // Name of the preemptible form; empty if there is none.
  // Offset of ClaimParameter in the parameters of the preemptible form, after the client's own.
  std::uint32_t parameter_offset = 0;
  // Reason why there is no preemptible form: "line 12: waiting for other blocks".
  std::string reason;
};

struct Claims {
  // The original module with a preemptible form after each kernel that has one. Both forms share
  // the module's variables.
  Module module;
  std::vector<PreemptibleKernel> kernels;  // All kernels with a body, in source order.
};

// Adds preemptible forms. A launch of such a form has any number of blocks in x and the client's
// block shape. ClaimParameter follows the client's parameters, and dynamic shared memory is
// kClaimSharedBytes larger. Blocks that find nothing to claim end at once.
//
// Kernels get no preemptible form if one of these holds:
//   * They synchronise the grid, need clusters, or wait for blocks that are not earlier ones.
//   * They read special registers that claiming would change (cluster indices, %gridid,
//     %total_smem_size and the like), or read their block index or grid size in a .func.
//   * They call functions of other modules.
//   * They declare .global or .const variables in their body.
//   * Their module has 32-bit addresses.
//   * Their parameters leave no space for the additional one.
Claims Claim(const Module& module);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_CLAIM_H_
