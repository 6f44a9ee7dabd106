// SPDX-License-Identifier: Apache-2.0
// The passes that keep a client's kernels in the client's own memory, whatever addresses they
// compute, and, contained, from ending the context that they share with others.

#ifndef GPUSHARED_SERVER_PTX_PASSES_FENCE_H_
#define GPUSHARED_SERVER_PTX_PASSES_FENCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "common/ptx/text/module.h"
#include "server/ptx/analysis/variable_layout.h"
#include "server/ptx/passes/fault_place.h"
#include "server/ptx/passes/kernel_words.h"

namespace gpushared::ptx {

// The client's range is 2^k bytes large, at least this, and aligned to its size, so the high words
// of addresses tell everything about it. In the smallest range they are all the same: there the
// fence costs half as much.
inline constexpr std::uint64_t kFenceRangeBytesMin = std::uint64_t{4} << 30;

FenceConstant MakeFenceConstant(std::uint64_t range_base, std::uint64_t variables);

struct FencedKernel {
  std::string kernel;
  std::string reason;  // Why it cannot be fenced: "line 12: textures or surfaces"; else empty.
};

struct Fenced {
  // The fenced kernels under their own names and what they need; without all others.
  Module module;
  std::vector<FencedKernel> kernels;  // Every kernel with a body, in source order.
  std::string constant;               // Name of the variable that takes a FenceConstant.
  // The client's .global variables (and .const ones that it takes generic addresses of) are no
  // longer in the module: they lie in the client's range, at FenceConstant::variables.
  ModuleLayout variables;
  std::vector<FaultPlace> places;  // Of contained kernels only: what FaultRecord::place means.
};

// Rewrites every kernel it can, for a range of this size only: the text has the size, the
// FenceConstant has the place. Addresses are masked. Local accesses are clamped to the function's
// declarations, branches by index to their lists. Shared and local memory is zeroed before the
// kernel sees it. Launches need no more parameters, nor more shared memory.
//
// Kernels are rejected if they use textures, the device heap, launches by kernels, clusters, grid
// barriers, calls through registers or into other modules, or printing. Every instruction that is
// not known to be safe is rejected, too. __assertfail becomes a trap.
//
// Fails for sizes that no range has, modules of 32-bit addresses, names that begin as the server's
// own do, and variables that LayOutModule rejects.
Result<Fenced> Fence(const Module& module, std::uint64_t range_bytes);

// Fences the module, and prevents every known way in which a fenced kernel ends the context:
// - Global addresses are aligned to the access and end at the limit.
// - Shared addresses are aligned and end with the block's memory.
// - Local and parameter addresses are aligned and end with the function's own.
// - trap, brkpt and __assertfail fill in the FaultRecord; their thread leaves the kernel.
// - Threads look at ContainControl::stop before they begin, and on every path at
//   ContainHostWords::stop within bounded work; sleeps are short.
// A thread that leaves counts as having arrived at all barriers of its block.
//
// The pass rejects all that the fence rejects, and also recursion, mbarriers and cache policies. It
// rejects barriers of a part of the block, and several barriers in one kernel: threads could wait
// at them for ever.
//
// Fails as Fence does.
Result<Fenced> Contain(const Module& module, std::uint64_t range_bytes);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_FENCE_H_
