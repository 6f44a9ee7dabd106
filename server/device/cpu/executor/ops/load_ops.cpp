// SPDX-License-Identifier: Apache-2.0
// ld from global, generic, shared and local memory and from kernel parameters.
#include "server/device/cpu/executor/ops/memory.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

// Handles arbitrary lanes, addresses and spaces; also determines which lane faults.
template <typename T, u32 N, bool Strong>
__attribute__((noinline)) const MicroOp* LoadEach(Warp& w, const MicroOp* op, u32 lanes,
                                                  FindHostAddresses find) {
  alignas(64) std::byte* host[kLanes];
  if (!find(w, op, lanes, static_cast<u32>(sizeof(T) * N), host)) return nullptr;
  for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
    const u32 l = static_cast<u32>(__builtin_ctz(rest));
    alignas(32) std::byte value[sizeof(T) * N];
    if constexpr (Strong) {
      LoadWhole<sizeof(T) * N>(value, host[l]);
    } else {
      __builtin_memcpy(value, host[l], sizeof(T) * N);
    }
    for (u32 i = 0; i < N; ++i) Put<T>(w.frame + op->rows[i], l, Read<T>(value + i * sizeof(T)));
  }
  return op + 1;
}

template <typename T, typename Index>
GPUSHARED_INLINE bool AllEqual(const std::byte* addresses) {
  const Index first = Get<Index>(addresses, 0);
  Index difference = 0;
  for (u32 l = 0; l < kLanes; ++l) difference |= Get<Index>(addresses, l) ^ first;
  return difference == 0;
}
template <typename T, typename Index, u32 N>
GPUSHARED_INLINE bool Consecutive(const std::byte* addresses) {
  const Index first = Get<Index>(addresses, 0);
  Index difference = 0;
  for (u32 l = 0; l < kLanes; ++l) {
    difference |= Get<Index>(addresses, l) ^ (first + static_cast<Index>(l * sizeof(T) * N));
  }
  return difference == 0;
}

// Loads one element, or a vector of N elements, for each lane from consecutive memory.
template <typename T, u32 N>
GPUSHARED_INLINE void CopyConsecutive(Warp& w, const MicroOp* op, const std::byte* from) {
  if constexpr (N == 1 && sizeof(T) >= 4) {
    __builtin_memcpy(w.frame + op->rows[0], from, kLanes * sizeof(T));
  } else {
    for (u32 i = 0; i < N; ++i) {
      std::byte* row = w.frame + op->rows[i];
#pragma GCC ivdep
      for (u32 l = 0; l < kLanes; ++l) Put<T>(row, l, Read<T>(from + (l * N + i) * sizeof(T)));
    }
  }
}

template <typename T, u32 N>
GPUSHARED_INLINE void Broadcast(Warp& w, const MicroOp* op, const std::byte* from) {
  T values[N];
  __builtin_memcpy(values, from, sizeof(values));
  for (u32 i = 0; i < N; ++i) {
    std::byte* row = w.frame + op->rows[i];
    for (u32 l = 0; l < kLanes; ++l) Put<T>(row, l, values[i]);
  }
}

// Returns whether all lanes are inside the space and aligned.
template <Space S, typename Index>
GPUSHARED_INLINE bool AllInside(Warp& w, const MicroOp* op, const std::byte* addresses, u32 bytes) {
  const u64 base = SpaceBase<S>(w);
  const u64 limit = StartLimit(SpaceBytes<S>(w), bytes);
  bool outside = false;
  Index low_bits = 0;
  for (u32 l = 0; l < kLanes; ++l) {
    const Index address = static_cast<Index>(GetAddress<Index>(addresses, op, l));
    outside |= static_cast<Index>(address - static_cast<Index>(base)) >= static_cast<Index>(limit);
    low_bits |= address;
  }
  return !outside && (low_bits & (bytes - 1)) == 0;
}

// Handles common address patterns of all lanes inside the window. Returns false, without effects,
// for other addresses.
template <typename T, Space S, typename Index, u32 N>
GPUSHARED_INLINE bool LoadAll(Warp& w, const MicroOp* op) {
  constexpr u32 kBytes = sizeof(T) * N;
  const std::byte* addresses = w.frame + op->a;
  const u64 first = GetAddress<Index>(addresses, op, 0);
  if (Consecutive<T, Index, N>(addresses)) {
    const u64 last = GetAddress<Index>(addresses, op, kLanes - 1);
    if (first > last || !Inside<S>(w, first, kBytes) || !Inside<S>(w, last, kBytes)) return false;
    CopyConsecutive<T, N>(w, op, HostAddress<S>(w, 0, first));
    return true;
  }
  if (AllEqual<T, Index>(addresses)) {
    if (!Inside<S>(w, first, kBytes)) return false;
    Broadcast<T, N>(w, op, HostAddress<S>(w, 0, first));
    return true;
  }
  if (N != 1 || !AllInside<S, Index>(w, op, addresses, kBytes)) return false;
  std::byte* row = w.frame + op->rows[0];
  // The destination may be the row of the addresses, so each lane reads its address before it
  // writes.
  for (u32 l = 0; l < kLanes; ++l) {
    Put<T>(row, l, Read<T>(HostAddress<S>(w, l, GetAddress<Index>(addresses, op, l))));
  }
  return true;
}

template <typename T, Space S, typename Index, u32 N>
const MicroOp* Load(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  if constexpr (S != Space::kLocal) {
    if (lanes == kAllLanes && LoadAll<T, S, Index, N>(w, op)) return op + 1;
    if (WindowMoved<S, Index>(w, op, lanes)) return Load<T, S, Index, N>(w, op);
  }
  return LoadEach<T, N, false>(w, op, lanes, HostAddresses<S, Index, kReading<S>>);
}

#if defined(__AVX2__)
// Loads 32 bits from shared memory, the most frequent load of tiled kernels. The address check
// takes one compare per eight lanes; the gather handles all address patterns.
const MicroOp* GatherShared(Warp& w, const MicroOp* op) {
  constexpr FindHostAddresses kSharedAddresses = HostAddresses<Space::kShared, u32>;
  const u32 lanes = Lanes(w, op);
  const u64 space = w.block->shared_bytes;
  if (lanes != kAllLanes || space < 4) {
    return lanes == 0 ? op + 1 : LoadEach<u32, 1, false>(w, op, lanes, kSharedAddresses);
  }
  const std::byte* addresses = w.frame + op->a;
  const __m256i offset = _mm256_set1_epi32(static_cast<s32>(op->immediate));
  const __m256i highest = _mm256_set1_epi32(static_cast<s32>(space - 4));
  __m256i address[4];
  __m256i low_bits = _mm256_setzero_si256();
  __m256i inside = _mm256_set1_epi32(-1);
  for (u32 i = 0; i < 4; ++i) {
    const auto* from = reinterpret_cast<const __m256i*>(addresses + std::size_t{i} * 32);
    address[i] = _mm256_add_epi32(_mm256_load_si256(from), offset);
    low_bits = _mm256_or_si256(low_bits, address[i]);
    inside = _mm256_and_si256(
        inside, _mm256_cmpeq_epi32(_mm256_min_epu32(address[i], highest), address[i]));
  }
  const __m256i misaligned = _mm256_and_si256(low_bits, _mm256_set1_epi32(3));
  if (__builtin_expect(
          _mm256_movemask_epi8(inside) != -1 || _mm256_testz_si256(misaligned, misaligned) == 0,
          0)) {
    return LoadEach<u32, 1, false>(w, op, lanes, kSharedAddresses);
  }
  std::byte* row = w.frame + op->rows[0];
  const int* shared = reinterpret_cast<const int*>(w.block->shared);
  for (u32 i = 0; i < 4; ++i) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(row + std::size_t{i} * 32),
                       _mm256_i32gather_epi32(shared, address[i], 1));
  }
  return op + 1;
}
#endif

// Implements volatile, relaxed and acquire loads by one LoadWhole for each lane.
template <typename T, Space S, typename Index, u32 N>
const MicroOp* LoadStrong(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  Polled(w);
  if (lanes == 0) return op + 1;
  WindowMoved<S, Index>(w, op, lanes);
  return LoadEach<T, N, true>(w, op, lanes, HostAddresses<S, Index, kReading<S>>);
}

// Loads kernel parameters at a fixed offset, which was validated when the load was decoded.
template <typename T, u32 N>
const MicroOp* LoadParameter(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  const std::byte* from = w.block->parameters + op->immediate;
  for (u32 i = 0; i < N; ++i) {
    const T value = Read<T>(from + i * sizeof(T));
    StoreLanes<T>(w.frame + op->rows[i], lanes, [&](u32) { return value; });
  }
  return op + 1;
}

// Loads kernel parameters at a computed offset, as in indexing a struct that was passed by value.
template <typename T, u32 N>
const MicroOp* LoadParameterAt(Warp& w, const MicroOp* op) {
  constexpr u32 kBytes = sizeof(T) * N;
  const std::byte* addresses = w.frame + op->a;
  alignas(64) u64 offset[kLanes];
  const u32 lanes = Lanes(w, op);
  for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
    const u32 l = static_cast<u32>(__builtin_ctz(rest));
    offset[l] = GetAddress<u64>(addresses, op, l);
    const bool outside = offset[l] >= StartLimit(w.block->parameter_bytes, kBytes);
    if (outside || (offset[l] & (kBytes - 1)) != 0) {
      return RaiseFault(w, op, outside ? Fault::Kind::kParameterAddress : Fault::Kind::kMisaligned,
                        l, offset[l], kBytes);
    }
  }
  for (u32 i = 0; i < N; ++i) {
    StoreEachLane<T>(w.frame + op->rows[i], lanes, [&](u32 l) {
      return Read<T>(w.block->parameters + offset[l] + i * sizeof(T));
    });
  }
  return op + 1;
}

struct Loads {
  template <typename T, Space S, typename Index, u32 N>
  static void Add(const OpSink& sink, const char* space, const char* index, const char* vector,
                  const char* type) {
    AddOp(sink, kRows, Load<T, S, Index, N>, "ld", space, index, vector, type);
    if constexpr (S != Space::kLocal) {
      AddOp(sink, kRows, LoadStrong<T, S, Index, N>, "ld.strong", space, index, vector, type);
    }
  }
};

template <typename T, u32 N>
void AddParameters(const OpSink& sink, const char* vector, const char* type) {
  AddOp(sink, OpRule(OpRule::kParameter, sizeof(T) * N), LoadParameter<T, N>, "ld.param", vector,
        type);
  AddOp(sink, kRows, LoadParameterAt<T, N>, "ld.param.a64", vector, type);
}

template <typename T>
void AddLoads(const OpSink& sink, const char* type) {
  AddVectors<Loads, T>(sink, type);
  AddParameters<T, 1>(sink, "", type);
  AddParameters<T, 2>(sink, "v2", type);
  if constexpr (sizeof(T) < 8) AddParameters<T, 4>(sink, "v4", type);
}

}  // namespace

void AddLoadOps(const OpSink& sink) {
  AddLoads<u8>(sink, "u8");
  AddLoads<s8>(sink, "s8");
  AddLoads<u16>(sink, "u16");
  AddLoads<s16>(sink, "s16");
  AddLoads<u32>(sink, "u32");
  AddLoads<u64>(sink, "u64");
#if defined(__AVX2__)
  AddOp(sink, kRows, GatherShared, "ld.shared.a32.u32");
#endif
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
