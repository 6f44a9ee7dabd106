// SPDX-License-Identifier: Apache-2.0
// Foundation of all op files: reads and writes rows, and applies a scalar function to all lanes so
// that the compiler can vectorize it.
//
// Compiled once per flavour, with GPUSHARED_FLAVOUR as the namespace.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OPS_LANES_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OPS_LANES_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "server/device/cpu/executor/code.h"
#include "server/device/cpu/executor/op_table.h"
#include "server/device/cpu/executor/warp.h"

#ifndef GPUSHARED_FLAVOUR
#error "op files are compiled with GPUSHARED_FLAVOUR=baseline or =v3"
#endif

#define GPUSHARED_INLINE __attribute__((always_inline)) inline

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;

// A bfloat16 as bits; arithmetic converts it to float.
struct bf16 {
  u16 bits;
};

template <typename To, typename From>
GPUSHARED_INLINE To Bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, _Float16> || std::is_same_v<T, bf16>;

template <typename T>
GPUSHARED_INLINE T Get(const std::byte* row, u32 lane) {
  if constexpr (sizeof(T) >= 4) {
    return reinterpret_cast<const T*>(row)[lane];
  } else if constexpr (kIsHalf<T>) {
    return Bits<T>(static_cast<u16>(reinterpret_cast<const u32*>(row)[lane]));
  } else {
    return static_cast<T>(reinterpret_cast<const u32*>(row)[lane]);
  }
}

// Sign-extends narrow signed values to a word, as required for a load into a wider register.
template <typename T>
GPUSHARED_INLINE auto Filled(T value) {
  if constexpr (sizeof(T) >= 4) {
    return value;
  } else if constexpr (kIsHalf<T>) {
    return u32{Bits<u16>(value)};
  } else {
    return static_cast<u32>(value);
  }
}
template <typename T>
GPUSHARED_INLINE void Put(std::byte* row, u32 lane, T value) {
  reinterpret_cast<decltype(Filled(value))*>(row)[lane] = Filled(value);
}

// clang-format off
alignas(64) inline constexpr u32 kBit[32] = {
    1u << 0, 1u << 1, 1u << 2, 1u << 3, 1u << 4, 1u << 5, 1u << 6, 1u << 7,
    1u << 8, 1u << 9, 1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
    1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
    1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31};
// clang-format on

GPUSHARED_INLINE u32 Predicate(const Warp& w, u32 offset) {
  return *reinterpret_cast<const u32*>(w.frame + offset);
}

GPUSHARED_INLINE void SetPredicate(Warp& w, u32 offset, u32 lanes, u32 value) {
  u32* word = reinterpret_cast<u32*>(w.frame + offset);
  *word = (*word & ~lanes) | (value & lanes);
}

// Returns the lanes that execute this op.
GPUSHARED_INLINE u32 Lanes(const Warp& w, const MicroOp* op) {
  const u32 guard = Predicate(w, op->guard & ~1u) ^ (0u - (op->guard & 1u));
  return w.active & guard;
}

// Called by operations that are typical of spin loops. A polling lane yields to the others of its
// warp and block much sooner than one that computes.
GPUSHARED_INLINE void Polled(Warp& w) {
  w.polled = true;
  if (w.turns_left > kPollsPerTurn) w.turns_left = kPollsPerTurn;
}

// Ends an op that took about as long as `branches` rounds of a short loop.
GPUSHARED_INLINE const MicroOp* Charged(Warp& w, const MicroOp* op, s32 branches) {
  w.turns_left -= branches;
  if (__builtin_expect(w.turns_left >= 0, 1)) return op + 1;
  w.pc = static_cast<u32>(op + 1 - w.code);
  w.pause = Pause::kRunnable;
  return nullptr;
}

// Stores function(lane) of type D to the destination row for the given lanes. The function is
// called for inactive lanes as well, with arbitrary operands, so it must not trap or access memory.
template <typename D, typename F>
GPUSHARED_INLINE void StoreSomeLanes(std::byte* row, u32 lanes, F function) {
#pragma GCC ivdep
  for (u32 l = 0; l < kLanes; ++l) {
    // Inactive lanes keep their whole word, including the part above a narrow type.
    const auto value = Filled<D>(function(l));
    const auto old = Get<std::remove_const_t<decltype(value)>>(row, l);
    Put(row, l, (lanes & kBit[l]) != 0 ? value : old);
  }
}

// Like StoreSomeLanes, with a separate loop for the case that all lanes are active. Rare operations
// use StoreSomeLanes, because the second loop would double their compile time.
template <typename D, typename F>
GPUSHARED_INLINE void StoreLanes(std::byte* row, u32 lanes, F function) {
  if (__builtin_expect(lanes == kAllLanes, 1)) {
#pragma GCC ivdep
    for (u32 l = 0; l < kLanes; ++l) Put<D>(row, l, function(l));
  } else if (lanes != 0) {
    StoreSomeLanes<D>(row, lanes, function);
  }
}

// Like StoreLanes, for functions that are too expensive for inactive lanes.
template <typename D, typename F>
GPUSHARED_INLINE void StoreEachLane(std::byte* row, u32 lanes, F function) {
  for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
    const u32 l = static_cast<u32>(__builtin_ctz(rest));
    Put<D>(row, l, function(l));
  }
}

template <typename D, typename A, auto F>
const MicroOp* Unary(Warp& w, const MicroOp* op) {
  const std::byte* a = w.frame + op->a;
  StoreLanes<D>(w.frame + op->destination, Lanes(w, op),
                [&](u32 l) { return static_cast<D>(F(Get<A>(a, l))); });
  return op + 1;
}

template <typename D, typename A, typename B, auto F>
const MicroOp* Binary(Warp& w, const MicroOp* op) {
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  StoreLanes<D>(w.frame + op->destination, Lanes(w, op),
                [&](u32 l) { return static_cast<D>(F(Get<A>(a, l), Get<B>(b, l))); });
  return op + 1;
}

template <typename D, typename A, typename B, typename C, auto F>
const MicroOp* Ternary(Warp& w, const MicroOp* op) {
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  const std::byte* c = w.frame + op->c;
  StoreLanes<D>(w.frame + op->destination, Lanes(w, op),
                [&](u32 l) { return static_cast<D>(F(Get<A>(a, l), Get<B>(b, l), Get<C>(c, l))); });
  return op + 1;
}

// Like Unary, without a separate loop for the case that all lanes are active; for rare operations.
template <typename D, typename A, auto F>
const MicroOp* UnarySeldom(Warp& w, const MicroOp* op) {
  const std::byte* a = w.frame + op->a;
  StoreSomeLanes<D>(w.frame + op->destination, Lanes(w, op),
                    [&](u32 l) { return static_cast<D>(F(Get<A>(a, l))); });
  return op + 1;
}

template <typename D, typename A, auto F>
const MicroOp* UnaryScalar(Warp& w, const MicroOp* op) {
  const std::byte* a = w.frame + op->a;
  StoreEachLane<D>(w.frame + op->destination, Lanes(w, op),
                   [&](u32 l) { return static_cast<D>(F(Get<A>(a, l))); });
  return op + 1;
}

template <typename D, typename A, typename B, auto F>
const MicroOp* BinaryScalar(Warp& w, const MicroOp* op) {
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  StoreEachLane<D>(w.frame + op->destination, Lanes(w, op),
                   [&](u32 l) { return static_cast<D>(F(Get<A>(a, l), Get<B>(b, l))); });
  return op + 1;
}

// Adds an operation. Its key consists of the non-empty parts, joined with dots.
template <typename... Parts>
void AddOp(const OpSink& sink, const OpRule& rule, Handler handler, Parts... parts) {
  char key[64];
  u32 length = 0;
  const auto append = [&](const char* part) {
    if (*part == '\0') return;
    if (length != 0 && length < 63) key[length++] = '.';
    while (*part != '\0' && length < 63) key[length++] = *part++;
  };
  (append(parts), ...);
  key[length] = '\0';
  sink.add(sink.table, key, handler, rule);
}

enum class Rounding : u32 { kNearest = 0x0000, kDown = 0x2000, kUp = 0x4000, kZero = 0x6000 };

// Runs operation F with the SSE rounding mode R. F must be noinline, so that the compiler keeps its
// arithmetic between the two changes of the mode and compiles F once for all four modes.
template <Rounding R, Handler F>
const MicroOp* RoundedBy(Warp& w, const MicroOp* op) {
  const u32 saved = _mm_getcsr();
  _mm_setcsr((saved & ~0x6000u) | static_cast<u32>(R));
  asm volatile("" ::: "memory");
  const MicroOp* const next = F(w, op);
  asm volatile("" ::: "memory");
  _mm_setcsr(saved);
  return next;
}
template <Rounding R, Handler F>
inline constexpr Handler kRounded = R == Rounding::kNearest ? F : RoundedBy<R, F>;

// Replaces a subnormal by zero with the same sign.
GPUSHARED_INLINE float FlushSubnormal(float value) {
  const u32 bits = Bits<u32>(value);
  return Bits<float>((bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits);
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OPS_LANES_H_
