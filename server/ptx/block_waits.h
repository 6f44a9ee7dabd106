// SPDX-License-Identifier: Apache-2.0
// Loops in which a thread looks again and again at memory that another block may change.

#ifndef GPUSHARED_SERVER_PTX_BLOCK_WAITS_H_
#define GPUSHARED_SERVER_PTX_BLOCK_WAITS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "server/ptx/control_flow.h"
#include "server/ptx/module.h"

namespace gpushared::ptx {

// One access that waits: what it reads decides whether it is executed again.
struct BlockWait {
  std::uint32_t line = 0;
  // It looks at places of blocks with a lower index than its own, as decoupled look-back scans do:
  // whichever prefix of a grid runs, such a wait ends.
  bool is_for_earlier_blocks = false;
};

// Registers followed, instructions and branches visited in all functions of one module; where that
// does not suffice, what has not been looked at counts as waiting. The programs of the CUDA
// toolkit's own libraries take up to ten thousand.
inline constexpr std::size_t kBlockWaitStepsMax = std::size_t{1} << 26;

// Taken so far in functions of one module.
struct WaitSteps {
  std::size_t followed = 0;   // Of kBlockWaitStepsMax.
  std::size_t look_back = 0;  // Of kLookBackStepsMax.
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

#endif  // GPUSHARED_SERVER_PTX_BLOCK_WAITS_H_
