// SPDX-License-Identifier: Apache-2.0
// Addresses of memory operations: the location of each space, and the checks.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OPS_MEMORY_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OPS_MEMORY_H_

#include <emmintrin.h>

#include <type_traits>

#include "server/device/cpu/executor/ops/lanes.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {

enum class Space { kGlobal, kGeneric, kShared, kLocal };

// Returns a lane's address with the immediate added. Index has the width of the address register;
// 32-bit addresses wrap.
template <typename Index>
GPUSHARED_INLINE u64 GetAddress(const std::byte* row, const MicroOp* op, u32 lane) {
  return static_cast<Index>(Get<Index>(row, lane) + static_cast<Index>(op->immediate));
}

// Return the first address and the size of the space, in the space's own addresses.
template <Space S>
GPUSHARED_INLINE u64 SpaceBase(const Warp& w) {
  return S == Space::kGlobal || S == Space::kGeneric ? w.block->global_base : 0;
}
template <Space S>
GPUSHARED_INLINE u64 SpaceBytes(const Warp& w) {
  if constexpr (S == Space::kShared) return w.block->shared_bytes;
  if constexpr (S == Space::kLocal) return w.block->local_bytes_per_thread;
  return w.block->global_bytes;
}

template <Space S>
inline constexpr Fault::Kind kSpaceFault = S == Space::kShared  ? Fault::Kind::kSharedAddress
                                           : S == Space::kLocal ? Fault::Kind::kLocalAddress
                                                                : Fault::Kind::kGlobalAddress;

// Returns the host address of a validated address.
template <Space S>
GPUSHARED_INLINE std::byte* HostAddress(const Warp& w, u32 lane, u64 address) {
  if constexpr (S == Space::kShared) {
    return w.block->shared + address;
  } else if constexpr (S == Space::kLocal) {
    return w.local + lane * w.block->local_bytes_per_thread + address;
  } else {
    return reinterpret_cast<std::byte*>(address);
  }
}

// Returns one past the last offset at which an access of `bytes` may start, or 0 if the space is
// too small.
GPUSHARED_INLINE u64 StartLimit(u64 space_bytes, u32 bytes) {
  return space_bytes >= bytes ? space_bytes - bytes + 1 : 0;
}

template <Space S>
GPUSHARED_INLINE bool Inside(const Warp& w, u64 address, u32 bytes) {
  return address - SpaceBase<S>(w) < StartLimit(SpaceBytes<S>(w), bytes) &&
         (address & (bytes - 1)) == 0;
}

// Returns whether the access is in memory outside the window: other pieces of the launch's access
// set, variables of the launched module, or further pieces.
inline bool InOtherMemory(const Warp& w, u64 address, u32 bytes) {
  if (w.block->has_reach && MoveWindow(*w.block, address)) {
    return Inside<Space::kGlobal>(w, address, bytes);
  }
  if ((address & (bytes - 1)) != 0) return false;
  const MemoryWindow& memory = w.block->launch->memory;
  if (address - memory.variables_base < StartLimit(memory.variables_bytes, bytes)) return true;
  const MemoryPiece* const piece = PieceAt(memory.further, address);
  return piece != nullptr && address - piece->base < StartLimit(piece->bytes, bytes);
}

// Called for an access of these lanes outside of the window. Moves the window to the address of the
// first lane if the launch may access that. Lanes with addresses elsewhere use the slow path.
template <Space S, typename Index>
__attribute__((noinline)) bool WindowMoved(Warp& w, const MicroOp* op, u32 lanes) {
  if constexpr (S == Space::kGlobal || S == Space::kGeneric) {
    if (__builtin_expect(!w.block->has_reach, 1)) return false;
    const u32 first = static_cast<u32>(__builtin_ctz(lanes));
    return MoveWindow(*w.block, GetAddress<Index>(w.frame + op->a, op, first));
  } else {
    return false;
  }
}

// The slow path: returns one lane's host address, or null after raising a fault.
template <Space S, Access A = Access::kWrite>
std::byte* Checked(Warp& w, const MicroOp* op, u32 lane, u64 address, u32 bytes) {
  if (__builtin_expect(Inside<S>(w, address, bytes), 1)) return HostAddress<S>(w, lane, address);
  // Generic addresses also include the windows of other spaces, and global memory has further
  // parts, such as module variables.
  if constexpr (S == Space::kGeneric) {
    return ResolveGeneric(w, op, lane, address, bytes, bytes, A);
  } else if (S == Space::kGlobal && InOtherMemory(w, address, bytes)) {
    return HostAddress<S>(w, lane, address);
  } else {
    const bool outside = address - SpaceBase<S>(w) >= StartLimit(SpaceBytes<S>(w), bytes);
    RaiseFault(w, op, outside ? kSpaceFault<S> : Fault::Kind::kMisaligned, lane, address, bytes);
    return nullptr;
  }
}

// The slow path for several lanes: computes their host addresses. Returns false after raising a
// fault. The caller writes results only afterwards, because a destination may be the row of the
// addresses. Compiled once per space, instead of once per operation.
template <Space S, typename Index, Access A = Access::kWrite>
__attribute__((noinline)) bool HostAddresses(Warp& w, const MicroOp* op, u32 lanes, u32 bytes,
                                             std::byte** host) {
  const std::byte* addresses = w.frame + op->a;
  for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
    const u32 l = static_cast<u32>(__builtin_ctz(rest));
    host[l] = Checked<S, A>(w, op, l, GetAddress<Index>(addresses, op, l), bytes);
    if (host[l] == nullptr) return false;
  }
  return true;
}
// Access to check for reads: only generic addresses distinguish reads from writes.
template <Space S>
inline constexpr Access kReading = S == Space::kGeneric ? Access::kRead : Access::kWrite;
using FindHostAddresses = bool (*)(Warp& w, const MicroOp* op, u32 lanes, u32 bytes,
                                   std::byte** host);

template <typename T>
GPUSHARED_INLINE T Read(const std::byte* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof(T));
  return value;
}
template <typename T>
GPUSHARED_INLINE void Write(std::byte* to, T value) {
  __builtin_memcpy(to, &value, sizeof(T));
}

template <u32 kBytes>
using Whole = std::conditional_t<
    kBytes == 1, u8,
    std::conditional_t<kBytes == 2, u16, std::conditional_t<kBytes == 4, u32, u64>>>;

// Accesses all elements of a vector at once with a strong access. PTX guarantees atomicity of each
// element only, but GPUs provide it for the vector and programs rely on that: CUB stores a tile's
// status and value in one vector. Vectors of 32 bytes are accessed as two halves. Aligned SSE
// accesses of 16 bytes are atomic on processors with AVX (Intel SDM volume 3, 9.1.1; AMD APM volume
// 2, 7.3.2). On x86, plain accesses acquire and release.
template <u32 kBytes>
GPUSHARED_INLINE void StoreWhole(std::byte* to, const std::byte* value) {
  if constexpr (kBytes > 16) {
    StoreWhole<kBytes / 2>(to, value);
    StoreWhole<kBytes / 2>(to + kBytes / 2, value + kBytes / 2);
  } else if constexpr (kBytes == 16) {
    // Only local memory may be misaligned. It needs no atomic access, because only its own thread
    // accesses it.
    if (reinterpret_cast<u64>(to) % 16 != 0) {
      __builtin_memcpy(to, value, kBytes);
      return;
    }
    const __m128i whole = _mm_loadu_si128(reinterpret_cast<const __m128i*>(value));
    asm volatile("" ::: "memory");
    _mm_store_si128(reinterpret_cast<__m128i*>(to), whole);
  } else {
    Whole<kBytes> whole;
    __builtin_memcpy(&whole, value, kBytes);
    __atomic_store_n(reinterpret_cast<Whole<kBytes>*>(to), whole, __ATOMIC_RELEASE);
  }
}

template <u32 kBytes>
GPUSHARED_INLINE void LoadWhole(std::byte* value, const std::byte* from) {
  if constexpr (kBytes > 16) {
    LoadWhole<kBytes / 2>(value, from);
    LoadWhole<kBytes / 2>(value + kBytes / 2, from + kBytes / 2);
  } else if constexpr (kBytes == 16) {
    if (reinterpret_cast<u64>(from) % 16 != 0) {
      __builtin_memcpy(value, from, kBytes);
      return;
    }
    const __m128i whole = _mm_load_si128(reinterpret_cast<const __m128i*>(from));
    asm volatile("" ::: "memory");
    _mm_storeu_si128(reinterpret_cast<__m128i*>(value), whole);
  } else {
    const Whole<kBytes> whole =
        __atomic_load_n(reinterpret_cast<const Whole<kBytes>*>(from), __ATOMIC_ACQUIRE);
    __builtin_memcpy(value, &whole, kBytes);
  }
}

// Adds the ops of a family for every space and address width of an instruction. Calls
// Family::Add<T, S, Index, N>(sink, space, index, vector, type). Vectors of 32 bytes exist only for
// global and generic addresses.
template <typename Family, typename T, u32 N>
void AddSpaces(const OpSink& sink, const char* vector, const char* type) {
  Family::template Add<T, Space::kGlobal, u64, N>(sink, "global", "a64", vector, type);
  Family::template Add<T, Space::kGeneric, u64, N>(sink, "generic", "a64", vector, type);
  if constexpr (sizeof(T) * N <= 16) {
    Family::template Add<T, Space::kShared, u64, N>(sink, "shared", "a64", vector, type);
    Family::template Add<T, Space::kShared, u32, N>(sink, "shared", "a32", vector, type);
    Family::template Add<T, Space::kLocal, u64, N>(sink, "local", "a64", vector, type);
    Family::template Add<T, Space::kLocal, u32, N>(sink, "local", "a32", vector, type);
  }
}

template <typename Family, typename T>
void AddVectors(const OpSink& sink, const char* type) {
  AddSpaces<Family, T, 1>(sink, "", type);
  AddSpaces<Family, T, 2>(sink, "v2", type);
  AddSpaces<Family, T, 4>(sink, "v4", type);
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OPS_MEMORY_H_
