// SPDX-License-Identifier: Apache-2.0
// The pass that makes a kernel stoppable between two thread blocks: a block no longer is the
// one that the hardware says, but the one that it claims from a counter.

#ifndef GPUSHARED_SERVER_PTX_PASSES_CLAIM_H_
#define GPUSHARED_SERVER_PTX_PASSES_CLAIM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// The parameter that a claimed kernel takes behind its own. Device addresses are of global memory
// that the kernel reaches; the words there are 32 bits wide and aligned.
//
// The counter less the base is the number of blocks that have been claimed: before the first launch
// 0, or the block to resume at. So a counter need not be set before each launch. A block ends at
// once when stop - epoch, as a signed number, is not negative: writing an epoch stops the launches
// of that epoch and all before it, and nothing is ever cleared. Else it claims block
// (counter++ - base), and ends at once when there is none left. So the claimed blocks are exactly
// [0, min(counter - base, blocks)), and every claimed block runs to its end.
struct ClaimParameter {
  std::uint64_t counter = 0;  // Device address.
  std::uint64_t stop = 0;     // Device address.
  std::uint32_t epoch = 0;
  std::uint32_t blocks = 0;  // Of the client's grid: x * y * z, below kClaimBlocksMax.
  std::uint32_t grid_x = 1;
  std::uint32_t grid_y = 1;
  std::uint32_t grid_z = 1;
  std::uint32_t base = 0;  // Modulo 2^32, as the counter.
};
static_assert(sizeof(ClaimParameter) == 40);

inline constexpr std::uint32_t kClaimParameterAlignment = 8;
// Bytes that a claimed launch adds to the client's dynamic shared memory.
inline constexpr std::uint32_t kClaimSharedBytes = 16;
// Grids of as many blocks or more are not claimed.
inline constexpr std::uint64_t kClaimBlocksMax = std::uint64_t{1} << 31;

struct PreemptibleKernel {
  std::string kernel;
  std::string claimed;  // Name of the claimed form; empty when there is none.
  // Where ClaimParameter lies in the claimed form's parameters; the client's own come before.
  std::uint32_t parameter_offset = 0;
  std::string reason;  // Why there is no claimed form: "line 12: waiting for other blocks".
};

struct Claims {
  // The module as it was, and a claimed form behind each kernel that has one. Both forms share
  // the module's variables.
  Module module;
  std::vector<PreemptibleKernel> kernels;  // Every kernel with a body, in source order.
};

// Adds claimed forms. A launch of a claimed form has any number of blocks in x and the client's
// block shape. ClaimParameter follows the client's parameters. Dynamic shared memory has
// kClaimSharedBytes more. Blocks that find nothing to claim end at once.
//
// Kernels get no claimed form if one of these holds:
//   * They synchronise the grid, need clusters, or wait for other than earlier blocks.
//   * They read their place from registers that differ from launch to launch, or in a .func.
//   * They call functions of other modules.
//   * They have no room for the parameter.
Claims Claim(const Module& module);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_CLAIM_H_
