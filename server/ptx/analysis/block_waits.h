// SPDX-License-Identifier: Apache-2.0
// Loops in which a thread looks again and again at memory that another block may change.

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

// One access that waits: what it reads decides whether it is executed again.
struct BlockWait {
  std::uint32_t line = 0;
  std::uint32_t instruction = 0;  // Its index in the ControlFlow.
  // It looks at places of blocks with a lower index than its own, as decoupled look-back scans do:
  // whichever prefix of a grid runs, such a wait ends.
  bool is_for_earlier_blocks = false;
};

// Steps for one module: registers followed, instructions and branches visited. Beyond them,
// everything that has not been looked at counts as waiting. The programs of the CUDA toolkit's
// own libraries take up to ten thousand.
inline constexpr std::size_t kBlockWaitStepsMax = std::size_t{1} << 26;

// Taken so far in functions of one module.
struct WaitSteps {
  std::size_t followed = 0;   // At most kBlockWaitStepsMax.
  std::size_t look_back = 0;  // At most kLookBackStepsMax.
};

// True for an access to global or generic memory that sees what other blocks write meanwhile:
// volatile, relaxed, acquire, .cv and .cg loads, and atomics that may be repeated without doing
// anything (exch, cas, and, or, min, max, add of 0). Those of the client only, not of passes.
bool MayPoll(const Instruction& instruction);

// Waits of one function, in source order. Found when the value read decides, through registers,
// parameters or memory, whether the access is repeated. A compare-and-swap that expects what it
// read itself before is a retry and no wait. `callee_polls` says whether a call may return what
// another block wrote.
std::vector<BlockWait> FindBlockWaits(const ControlFlow& flow,
                                      const std::function<bool(const Instruction&)>& callee_polls,
                                      WaitSteps& steps);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_BLOCK_WAITS_H_
