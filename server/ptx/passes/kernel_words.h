// SPDX-License-Identifier: Apache-2.0
// Memory of fenced or contained kernels: additional memory that they may access, and the words
// through which they communicate with the server.

#ifndef GPUSHARED_SERVER_PTX_PASSES_KERNEL_WORDS_H_
#define GPUSHARED_SERVER_PTX_PASSES_KERNEL_WORDS_H_

#include <array>
#include <cstdint>

namespace gpushared::ptx {

// Number of bytes before and after the client's range that fenced kernels may access; they must be
// unmapped or unused. The first kFenceMarginBytes of the range must be unused as well, because a
// kernel may compute an address before its buffer and access the buffer with an immediate offset:
// at the start of the range, that address would be masked to the other end of the range.
inline constexpr std::uint64_t kFenceMarginBytes = std::uint64_t{64} << 10;

// Content of the variable Fenced::constant. The server writes it before the first launch.
struct FenceConstant {
  // Larger than any index of a thread in its block; see FenceCode::LoadBase.
  std::uint32_t never = 0xffffffff;
  std::uint32_t base_high = 0;
  std::uint64_t variables = 0;  // Address of the module's variables (Fenced::variables).
  // Device addresses of a ContainControl and of ContainHostWords; unused by fenced kernels.
  std::uint64_t control = 0;
  std::uint64_t host_words = 0;
};
static_assert(sizeof(FenceConstant) == 32);

// Communication between the server and running contained kernels, in device memory that clients
// cannot access: one for each module of a client, at FenceConstant::control. The server writes the
// limit and zeroes the rest while no kernel runs. Kernels write the members after `stop`. They also
// write `stop`: a thread that left because of ContainHostWords::stop sets it, so that blocks that
// have not started end even if no driver call can set it.
struct ContainControl {
  // End address of the client's memory. Kernels access [start of the range, limit +
  // kContainTailBytes) and, through addresses, their module's variables with the same tail: all of
  // it is mapped before a kernel starts and as long as one runs. The tail belongs to no client;
  // stray accesses end up there.
  std::uint64_t limit = 0;
  // If nonzero, blocks leave before they start. In device memory, because every launch reads it.
  std::uint32_t stop = 0;
  // Place of the first thread that ended early.
  std::uint32_t first_place = 0;
  // Whether the FaultRecord contains `first_place`, and whether it contains another place. A thread
  // that finds these set need not write to the record, which is slow to access.
  std::uint32_t has_place = 0;
  std::uint32_t has_other_place = 0;
};
static_assert(sizeof(ContainControl) == 24);

// The limit is a multiple of this, and this many bytes after it are mapped.
inline constexpr std::uint64_t kContainTailBytes = std::uint64_t{64} << 10;
// Maximum work of a thread between two stop checks, in the units of contain_work.h: once in loop
// iterations and once more outside of loops.
inline constexpr std::uint32_t kContainWork = 65536;

// Describes the first thread of a module that has ended early since the server last zeroed the
// record. That thread writes the record, so the record costs nothing until a fault occurs. The
// server can read the record after the kernel has ended.
struct FaultRecord {
  // 0 if nothing happened, otherwise Fenced::places[place - 1]. If two threads end at the same
  // place, the second one may write `place` first, so that `place` is set when the kernel of either
  // thread has ended.
  std::uint32_t place = 0;
  // Indices of the first thread; all kNoBlockIndex in a .func, which may not read the block index.
  std::array<std::uint32_t, 3> block = {};
  std::array<std::uint32_t, 3> thread = {};
  // Place where another thread has ended, if different; otherwise 0.
  std::uint32_t other_place = 0;
};
static_assert(sizeof(FaultRecord) == 32);
inline constexpr std::uint32_t kNoBlockIndex = 0xffffffff;

// Host memory that contained kernels can access and clients cannot: one for each module of a
// client, at FenceConstant::host_words.
struct ContainHostWords {
  FaultRecord fault;
  // If nonzero, every thread leaves its kernel after at most 2 * kContainWork in each active
  // function. The server sets it with a plain store, because a driver call may wait for the very
  // kernel that is to end. Threads read it once per kContainWork, so slow access is acceptable.
  std::uint32_t stop = 0;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_KERNEL_WORDS_H_
