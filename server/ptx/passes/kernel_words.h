// SPDX-License-Identifier: Apache-2.0
// The memory of kernels that were fenced or contained: what they may reach besides their own, and
// what they and the server tell each other there.

#ifndef GPUSHARED_SERVER_PTX_PASSES_KERNEL_WORDS_H_
#define GPUSHARED_SERVER_PTX_PASSES_KERNEL_WORDS_H_

#include <array>
#include <cstdint>

namespace gpushared::ptx {

// Fenced kernels may reach so many bytes before and behind the client's range. These must be
// unmapped or hold nothing. As many bytes at the start of the range should stay unused, too. A
// kernel may compute an address before its buffer and reach the buffer by an immediate. In a buffer
// at the start of the range that address would be masked to the range's other end.
inline constexpr std::uint64_t kFenceMarginBytes = std::uint64_t{64} << 10;

// What the server writes to the variable Fenced::constant before the first launch.
struct FenceConstant {
  // More than any number of a thread in its block; see FenceCode::LoadBase.
  std::uint32_t never = 0xffffffff;
  std::uint32_t base_high = 0;
  std::uint64_t variables = 0;  // Where the module's variables (Fenced::variables) were placed.
  // Device addresses of a ContainControl and of ContainHostWords; fenced kernels read
  // neither.
  std::uint64_t control = 0;
  std::uint64_t host_words = 0;
};
static_assert(sizeof(FenceConstant) == 32);

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

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_KERNEL_WORDS_H_
