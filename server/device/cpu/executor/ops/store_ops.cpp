// SPDX-License-Identifier: Apache-2.0
// st to global, generic, shared and local memory.
#include "server/device/cpu/executor/ops/memory.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

// Stores in ascending order of lanes, so that the last of several lanes that store to the same
// place wins. If one lane faults, none stores.
template <typename T, u32 N, bool Strong>
__attribute__((noinline)) const MicroOp* StoreEach(Warp& w, const MicroOp* op, u32 lanes,
                                                   FindHostAddresses find) {
  alignas(64) std::byte* host[kLanes];
  if (!find(w, op, lanes, static_cast<u32>(sizeof(T) * N), host)) return nullptr;
  for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
    const u32 l = static_cast<u32>(__builtin_ctz(rest));
    alignas(32) std::byte value[sizeof(T) * N];
    for (u32 i = 0; i < N; ++i) Write<T>(value + i * sizeof(T), Get<T>(w.frame + op->rows[i], l));
    if constexpr (Strong) {
      StoreWhole<sizeof(T) * N>(host[l], value);
    } else {
      __builtin_memcpy(host[l], value, sizeof(T) * N);
    }
  }
  return op + 1;
}

// Stores all lanes to consecutive places inside the window. Returns false, without effects, for
// other addresses.
template <typename T, Space S, typename Index, u32 N>
GPUSHARED_INLINE bool StoreAll(Warp& w, const MicroOp* op) {
  constexpr u32 kBytes = sizeof(T) * N;
  const std::byte* addresses = w.frame + op->a;
  const Index first_index = Get<Index>(addresses, 0);
  Index difference = 0;
  for (u32 l = 0; l < kLanes; ++l) {
    difference |= Get<Index>(addresses, l) ^ (first_index + static_cast<Index>(l * kBytes));
  }
  const u64 first = GetAddress<Index>(addresses, op, 0);
  const u64 last = GetAddress<Index>(addresses, op, kLanes - 1);
  if (difference != 0 || first > last || !Inside<S>(w, first, kBytes) ||
      !Inside<S>(w, last, kBytes)) {
    return false;
  }
  std::byte* to = HostAddress<S>(w, 0, first);
  if constexpr (N == 1 && sizeof(T) >= 4) {
    __builtin_memcpy(to, w.frame + op->rows[0], kLanes * sizeof(T));
  } else {
    for (u32 i = 0; i < N; ++i) {
      const std::byte* row = w.frame + op->rows[i];
      for (u32 l = 0; l < kLanes; ++l) Write<T>(to + (l * N + i) * sizeof(T), Get<T>(row, l));
    }
  }
  return true;
}

template <typename T, Space S, typename Index, u32 N>
const MicroOp* Store(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  if constexpr (S != Space::kLocal) {
    if (lanes == kAllLanes && StoreAll<T, S, Index, N>(w, op)) return op + 1;
    if (WindowMoved<S, Index>(w, op, lanes)) return Store<T, S, Index, N>(w, op);
  }
  return StoreEach<T, N, false>(w, op, lanes, HostAddresses<S, Index>);
}

template <typename T, Space S, typename Index, u32 N>
const MicroOp* StoreStrong(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  WindowMoved<S, Index>(w, op, lanes);
  return StoreEach<T, N, true>(w, op, lanes, HostAddresses<S, Index>);
}

struct Stores {
  template <typename T, Space S, typename Index, u32 N>
  static void Add(const OpSink& sink, const char* space, const char* index, const char* vector,
                  const char* type) {
    AddOp(sink, kRows, Store<T, S, Index, N>, "st", space, index, vector, type);
    if constexpr (S == Space::kGlobal || S == Space::kGeneric) {
      AddOp(sink, kRows, StoreStrong<T, S, Index, N>, "st.strong", space, index, vector, type);
    }
  }
};

}  // namespace

void AddStoreOps(const OpSink& sink) {
  AddVectors<Stores, u8>(sink, "u8");
  AddVectors<Stores, u16>(sink, "u16");
  AddVectors<Stores, u32>(sink, "u32");
  AddVectors<Stores, u64>(sink, "u64");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
