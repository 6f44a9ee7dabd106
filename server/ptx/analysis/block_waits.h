// SPDX-License-Identifier: Apache-2.0
// Finds loops in which a thread polls memory that another block may change.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_BLOCK_WAITS_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_BLOCK_WAITS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "common/ptx/text/module.h"
#include "server/ptx/analysis/control_flow.h"

namespace gpushared::ptx {

// An access that waits: the value read decides whether it is executed again.
struct BlockWait {
  std::uint32_t line = 0;
  std::uint32_t instruction = 0;  // Index in ControlFlow::instructions.
  // Whether the access polls only memory that blocks with a lower index write, as in decoupled
  // look-back scans. Such a wait ends even if only the first blocks of the grid run.
  bool is_for_earlier_blocks = false;
};

// Limit for one module: registers followed, instructions and branches visited. Beyond it, every
// access that was not analysed is treated as waiting. The CUDA toolkit's libraries take up to ten
// thousand.
inline constexpr std::size_t kBlockWaitStepsMax = std::size_t{1} << 26;

// Steps taken so far in functions of one module.
struct WaitSteps {
  std::size_t followed = 0;   // At most kBlockWaitStepsMax.
  std::size_t look_back = 0;  // At most kLookBackStepsMax.
};

// Whether the instruction accesses global or generic memory and can observe concurrent writes of
// other blocks: volatile, relaxed, acquire, mmio, .cv and .cg loads, and atomics that may be
// repeated without effect (exch, cas, and, or, min, max, add of 0). Always false for accesses of
// .cta scope and for instructions that a pass created.
bool MayPoll(const Instruction& instruction);

// Returns the waits of a function in source order. An access waits if the value read decides,
// through registers, parameters or memory, whether it is repeated. A compare-and-swap that expects
// the value that it read before is a retry, not a wait. `callee_polls` returns whether a call may
// return a value written by another block.
std::vector<BlockWait> FindBlockWaits(const ControlFlow& flow,
                                      const std::function<bool(const Instruction&)>& callee_polls,
                                      WaitSteps& steps);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_BLOCK_WAITS_H_
