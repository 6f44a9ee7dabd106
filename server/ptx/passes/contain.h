// SPDX-License-Identifier: Apache-2.0
// The pass that keeps what a client's kernels do from ending the context they share with others:
// the fence, and whatever else makes a device fault.

#ifndef GPUSHARED_SERVER_PTX_PASSES_CONTAIN_H_
#define GPUSHARED_SERVER_PTX_PASSES_CONTAIN_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "gpushared/fault_kind.h"
#include "gpushared/result.h"

#include "server/ptx/passes/fence.h"
#include "server/ptx/text/module.h"

namespace gpushared::ptx {

// What the server and contained kernels tell each other while kernels run, in device memory that no
// client reaches: one for each module of a client, at FenceConstant::control. The server writes the
// limit and zeroes all else when no kernel runs. Kernels write what follows `stop`, and `stop`,
// too: a thread that ContainHostWords::stop has sent away sets it, so that blocks that have not
// begun end even if the driver takes no call that would set it.
struct ContainControl {
  // The end of the client's memory, an address. Kernels reach [start of the range, limit +
  // kContainTailBytes) and, by addresses, their module's variables with as much behind them: all
  // of it is mapped before a kernel starts and as long as one runs. What lies behind the limit is
  // nobody's. Stray accesses end up there.
  std::uint64_t limit = 0;
  // When it is not 0, blocks leave before they begin. Every launch reads it, so it lies on the
  // device.
  std::uint32_t stop = 0;
  // The place of the first thread that ended otherwise than its code says; and whether the
  // FaultRecord has it, and another one. Who finds that it has need not write: it is far away.
  std::uint32_t first_place = 0;
  std::uint32_t has_place = 0;
  std::uint32_t has_other_place = 0;
};
static_assert(sizeof(ContainControl) == 24);

// The limit is a multiple of this, and as much behind it is mapped.
inline constexpr std::uint64_t kContainTailBytes = std::uint64_t{64} << 10;
// Of a thread before it looks whether it is to stop, half in turns of loops and half besides, as
// contain_work.h counts.
inline constexpr std::uint32_t kContainWork = 65536;

// What contained kernels write when a thread ends otherwise than its code says: the first one of
// the module since the server last zeroed it. Only a fault writes to it, so it costs nothing until
// then, and the server finds there what a kernel that has ended left.
struct FaultRecord {
  // 0: nothing happened. Else Fenced::places[place - 1]. Of two threads at one place, the second
  // may write it first, so that it is there when the kernel of either has ended.
  std::uint32_t place = 0;
  // Of the first thread; the block is all kNoBlockIndex in a .func, which may not ask for it.
  std::array<std::uint32_t, 3> block = {};
  std::array<std::uint32_t, 3> thread = {};
  std::uint32_t other_place = 0;  // Where another thread has ended; 0: none did elsewhere.
};
static_assert(sizeof(FaultRecord) == 32);
inline constexpr std::uint32_t kNoBlockIndex = 0xffffffff;

// Memory of the host that contained kernels reach and no client does: one for each module of a
// client, at FenceConstant::host_words.
struct ContainHostWords {
  FaultRecord fault;
  // When it is not 0, every thread leaves its kernel after at most 2 * kContainWork in each
  // function that it is in. The server sets it by a plain store: a driver may make a call wait for
  // the very kernel that is to end. Threads read it once in kContainWork, so it may be far away
  // from them.
  std::uint32_t stop = 0;
};

// Fences the module, and prevents every known way in which a fenced kernel ends the context:
// - Global addresses are aligned to the access and end at the limit.
// - Shared addresses are aligned and end with the block's memory.
// - Local and parameter addresses are aligned and end with the function's own.
// - trap, brkpt and __assertfail fill in the FaultRecord; their thread leaves the kernel.
// - Threads look at ContainControl::stop before they begin, and on every path at
//   ContainHostWords::stop within bounded work; sleeps are short.
// A thread that leaves counts as having arrived at all barriers of its block.
//
// The pass refuses all that the fence refuses, and also recursion, mbarriers and cache policies. It
// refuses barriers of a part of the block, and several barriers in one kernel: threads could wait
// at them for ever.
//
// Fails as Fence does.
Result<Fenced> Contain(const Module& module, std::uint64_t range_bytes);

struct ToldFault {
  FaultKind kind = FaultKind::kNone;
  std::string sentence;  // "trap at line 12 of 'k' [block (0,0,0) thread (1,0,0)]"
  bool is_stop = false;  // Its code did nothing: it was told to end.
};
// A record of no place that the module has, which no kernel of the module can write, is said to be
// that. `places`: Fenced::places.
ToldFault DescribeFault(std::span<const FaultPlace> places, const FaultRecord& record);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_CONTAIN_H_
