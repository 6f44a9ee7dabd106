// SPDX-License-Identifier: Apache-2.0
// Passes that confine a client's kernels to the client's own memory, whatever addresses they
// compute, and, for contained kernels, prevent them from ending the context that they share with
// other clients.

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

// Minimum size of a client's range. A range has 2^k bytes and is naturally aligned, so that the
// high word of an address determines whether the address is inside. In the smallest range all high
// words are equal, which halves the cost of the fence.
inline constexpr std::uint64_t kFenceRangeBytesMin = std::uint64_t{4} << 30;

FenceConstant MakeFenceConstant(std::uint64_t range_base, std::uint64_t variables);

struct FencedKernel {
  std::string kernel;
  // Reason why the kernel cannot be fenced: "line 12: textures or surfaces"; otherwise empty.
  std::string reason;
};

struct Fenced {
  // The fenced kernels under their original names and everything that they need, without other
  // kernels.
  Module module;
  std::vector<FencedKernel> kernels;  // All kernels with a body, in source order.
  std::string constant;               // Variable that receives a FenceConstant.
  // The client's .global variables are moved from the module to the client's range, at
  // FenceConstant::variables. All .const variables are moved as well if one of them contains an
  // address, is accessed other than by its name, or has its generic address taken.
  ModuleLayout variables;
  std::vector<FaultPlace> places;  // For contained kernels: meaning of FaultRecord::place.
};

// Rewrites every kernel, if possible, for a range of `range_bytes`. The rewritten text contains the
// size of the range, whereas the FenceConstant holds its position. Addresses are masked. Local
// accesses are clamped to the function's declarations, and indexed branches to their lists. Shared
// and local memory is zeroed before the kernel can read it. Launches need neither more parameters
// nor more shared memory.
//
// Kernels are rejected if they use textures, the device heap, launches by kernels, clusters, grid
// barriers, calls through registers or into other modules, or printing. Every instruction that is
// not known to be safe is rejected as well. __assertfail becomes a trap.
//
// Fails for invalid range sizes, modules with 32-bit addresses, names with the server's prefix, and
// variables that LayOutModule rejects.
Result<Fenced> Fence(const Module& module, std::uint64_t range_bytes);

// Fences the module, and prevents every known way in which a fenced kernel could end the context:
// - Global addresses are aligned to the access and end at the limit.
// - Shared addresses are aligned and end with the block's memory.
// - Local and parameter addresses are aligned and end with the function's own variables.
// - trap, brkpt and __assertfail fill in the FaultRecord and make their thread leave the kernel.
// - Threads check ContainControl::stop before they start, and ContainHostWords::stop after a
//   bounded amount of work on every path; sleeps are shortened.
// A thread that leaves is treated as having arrived at all barriers of its block.
//
// Rejects everything that the fence rejects, and also recursion and mbarriers. Rejects barriers for
// a part of the block, and several barriers in one kernel, because threads could wait at them
// forever. Cache policies are dropped, because an invalid one may fault.
//
// Fails like Fence.
Result<Fenced> Contain(const Module& module, std::uint64_t range_bytes);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_FENCE_H_
