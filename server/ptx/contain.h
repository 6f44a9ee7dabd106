// SPDX-License-Identifier: Apache-2.0
// The pass that keeps what a client's kernels do from ending the context they share with others:
// the fence, and whatever else makes a device fault.

#ifndef GPUSHARED_SERVER_PTX_CONTAIN_H_
#define GPUSHARED_SERVER_PTX_CONTAIN_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "gpushared/result.h"

#include "server/ptx/fence.h"
#include "server/ptx/module.h"

namespace gpushared::ptx {

// What the server writes and contained kernels read, in device memory that no client reaches: one
// for each module of a client, at FenceConstant::control.
struct ContainControl {
  // The end of the client's memory, an address. Kernels reach [start of the range, limit +
  // kContainTailBytes) and, by addresses, their module's variables with as much behind them: all
  // of it is mapped before a kernel starts and as long as one runs. What lies behind the limit is
  // nobody's. Stray accesses end up there.
  std::uint64_t limit = 0;
  // When it is not 0, every thread of the client leaves its kernel: before it begins, or after at
  // most 2 * kContainWork. The server sets it while kernels run.
  std::uint32_t stop = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(ContainControl) == 16);

// The limit is a multiple of this, and as much behind it is mapped.
inline constexpr std::uint64_t kContainTailBytes = std::uint64_t{64} << 10;
// Of a thread before it looks whether it is to stop, half in turns of loops and half besides, as
// contain_work.h counts.
inline constexpr std::uint32_t kContainWork = 65536;

// What contained kernels write when a thread ends otherwise than its code says: the first one of
// the module since the server last zeroed it. One for each module of a client, at
// FenceConstant::fault, in memory that no client reaches; the server reads it when kernels have
// ended.
struct FaultRecord {
  std::uint32_t place = 0;  // 0: nothing happened. Else Fenced::places[place - 1].
  // Of the thread; the block is all kNoBlockIndex in a .func, which may not ask for it.
  std::array<std::uint32_t, 3> block = {};
  std::array<std::uint32_t, 3> thread = {};
  std::uint32_t reserved = 0;
};
static_assert(sizeof(FaultRecord) == 32);
inline constexpr std::uint32_t kNoBlockIndex = 0xffffffff;

// Fence, and against all by which the fenced kernels are known to end the context:
// - addresses of global memory are aligned to what is accessed, and end at the limit;
// - those of shared memory are aligned and end with what the block has, those of local memory and
//   parameters with the function's own;
// - trap, brkpt and __assertfail fill in the FaultRecord; their thread leaves the kernel;
// - however it goes on, a thread looks at ContainControl::stop in bounded work; sleeps are short.
// A thread that leaves counts as having arrived at all barriers of its block.
//
// Not contained, beside what cannot be fenced: recursion; barriers of a part of the block, or
// several in one kernel, at which threads could wait forever; mbarriers; cache policies.
//
// Fails as Fence does.
Result<Fenced> Contain(const Module& module, std::uint64_t range_bytes);

// "trap at line 12 of 'k' [block (0,0,0) thread (1,0,0)]". A record of no place that the module
// has, which no kernel of the module can write, is said to be that. `places`: Fenced::places.
std::string DescribeFault(std::span<const FaultPlace> places, const FaultRecord& record);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_CONTAIN_H_
