// SPDX-License-Identifier: Apache-2.0
// Elements of matrices in registers: their types, their layout in registers, and arithmetic on
// them. Products are exact; sums are computed in double (integers: modulo 2^32) and rounded once.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OPS_MATRIX_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OPS_MATRIX_H_

#include <cstddef>
#include <type_traits>
#include <vector>

#include "server/device/cpu/executor/ops/half_float.h"
#include "server/device/cpu/executor/ops/memory.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {

// Defined in wgmma_ops.cpp; called by AddMatrixOps.
void AddWarpgroupOps(const OpSink& sink);

// An f32 of which only the upper 19 bits are significant.
struct tf32 {
  u32 bits;
};

template <typename T>
inline constexpr u32 kPacked = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
template <typename T>
inline constexpr bool kInteger = std::is_integral_v<T>;
template <typename T>
using Sum = std::conditional_t<kInteger<T>, s64, double>;

// Returns true if the handler must return null because lanes of the warp have not arrived.
GPUSHARED_INLINE bool MustMeet(Warp& w, const MicroOp* op) {
  if (__builtin_expect((~w.active & ~w.exited) == 0 || w.together, 1)) return false;
  WaitAt(w, op, Pause::kAligning);
  return true;
}

inline const MatrixCall& GetCall(const Warp& w, const MicroOp* op) {
  return w.block->code->matrix_calls[static_cast<std::size_t>(op->immediate)];
}

// A register of one lane: 8 bytes for double, otherwise 4.
template <typename T>
using Register = std::conditional_t<sizeof(T) == 8, u64, u32>;

template <typename T>
T Element(Register<T> bits, u32 s) {
  if constexpr (sizeof(T) >= 4) {
    return Bits<T>(bits);
  } else {
    using Raw = std::conditional_t<sizeof(T) == 2, u16, u8>;
    return Bits<T>(static_cast<Raw>(bits >> (s * sizeof(T) * 8)));
  }
}
template <typename T>
Sum<T> Value(T element) {
  if constexpr (kInteger<T>) {
    return element;
  } else if constexpr (std::is_same_v<T, tf32>) {
    return static_cast<double>(Bits<float>(element.bits & 0xffffe000u));
  } else if constexpr (kIsHalf<T>) {
    return static_cast<double>(ToFloat(element));
  } else {
    return static_cast<double>(element);
  }
}
template <typename T, bool Saturates>
T Rounded(Sum<T> value) {
  if constexpr (std::is_same_v<T, s32>) {
    if (Saturates && value > INT32_MAX) return INT32_MAX;
    if (Saturates && value < INT32_MIN) return INT32_MIN;
    return static_cast<s32>(static_cast<u32>(static_cast<u64>(value)));
  } else if constexpr (kIsHalf<T>) {
    return NarrowDouble<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
T GetElement(const Warp& w, const std::vector<u32>& rows, u32 r, u32 s, u32 lane) {
  return Element<T>(Get<Register<T>>(w.frame + rows[r], lane), s);
}
template <typename T>
void SetElement(Warp& w, const std::vector<u32>& rows, u32 r, u32 s, u32 lane, T value) {
  std::byte* row = w.frame + rows[r];
  if constexpr (sizeof(T) >= 4) {
    Put<Register<T>>(row, lane, Bits<Register<T>>(value));
  } else {
    using Raw = std::conditional_t<sizeof(T) == 2, u16, u8>;
    const u32 shift = s * static_cast<u32>(sizeof(T)) * 8, mask = static_cast<Raw>(~Raw{0});
    const u32 old = Get<u32>(row, lane);
    Put<u32>(row, lane, (old & ~(mask << shift)) | u32{Bits<Raw>(value)} << shift);
  }
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OPS_MATRIX_H_
