// SPDX-License-Identifier: Apache-2.0
// Operations of a warp on small matrices, and asynchronous copies.
//
// Fragments of mma (PTX ISA, Matrix Fragments for mma): with g = lane / 4, t = lane % 4 and
// P elements in a register, element s of register r is
//   of A: row g + 8 (r % 2), k = t P + s + 4 P (r / 2); without % and / where A has 8 rows
//   of B: k = t P + s + 4 P r, column g
//   of C and D: row g + 8 (r / 2), column 2 t + r % 2; pairs of f16 share a register.
// Fragments of wmma have an order that PTX leaves open. Here slot = (r P + s) 32 + lane
// holds element slot % (rows columns), row after row.
//
// Products are exact; sums are made in double (integers: modulo 2^32) and rounded once.
#include <array>
#include <cstring>

#include "server/device/cpu/executor/ops/half_float.h"
#include "server/device/cpu/executor/ops/memory.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

// f32 of which only the upper 19 bits count.
struct tf32 {
  u32 bits;
};

template <typename T>
inline constexpr u32 kPacked = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
template <typename T>
inline constexpr bool kInteger = std::is_integral_v<T>;
template <typename T>
using Sum = std::conditional_t<kInteger<T>, s64, double>;

constexpr u32 kElementsMax = 32 * 16;

// True: the handler must return null, since lanes of the warp are elsewhere.
GPUSHARED_INLINE bool MustMeet(Warp& w, const MicroOp* op) {
  if (__builtin_expect((~w.active & ~w.exited) == 0, 1)) return false;
  return WaitForMembers(w, op, kAllLanes);
}

const MatrixCall& CallOf(const Warp& w, const MicroOp* op) {
  return w.block->code->matrix_calls[static_cast<std::size_t>(op->immediate)];
}

// One register of one lane: 8 bytes for double, else 4.
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
T ElementOf(const Warp& w, const std::vector<u32>& rows, u32 r, u32 s, u32 lane) {
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

// Calls visit(r, s, lane, row, column) for each element of a C or D fragment of mma.
template <typename T, typename Visit>
void VisitResult(const std::vector<u32>& rows, Visit visit) {
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 g = lane / 4, t = lane % 4;
    for (u32 i = 0; i < rows.size() * kPacked<T>; ++i) {
      visit(i / kPacked<T>, i % kPacked<T>, lane, g + 8 * (i / 2), 2 * t + i % 2);
    }
  }
}

template <typename D, typename A, typename B, bool Saturates>
const MicroOp* MultiplyOp(Warp& w, const MicroOp* op) {
  if (Lanes(w, op) == 0) return op + 1;
  if (MustMeet(w, op)) return nullptr;
  const MatrixCall& call = CallOf(w, op);
  constexpr u32 P = kPacked<A>;
  std::array<Sum<A>, kElementsMax> a;
  std::array<Sum<B>, kElementsMax> b;
  std::array<Sum<D>, kElementsMax> c;
  const u32 halves = call.m / 8;
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 g = lane / 4, t = lane % 4;
    for (u32 s = 0; s < P; ++s) {
      for (u32 r = 0; r < call.a.size(); ++r) {
        const u32 row = g + 8 * (r % halves), k = t * P + s + 4 * P * (r / halves);
        a[row * call.k + k] = Value(ElementOf<A>(w, call.a, r, s, lane));
      }
      for (u32 r = 0; r < call.b.size(); ++r) {
        b[(t * P + s + 4 * P * r) * call.n + g] = Value(ElementOf<B>(w, call.b, r, s, lane));
      }
    }
  }
  VisitResult<D>(call.c, [&](u32 r, u32 s, u32 lane, u32 row, u32 column) {
    c[row * call.n + column] = Value(ElementOf<D>(w, call.c, r, s, lane));
  });
  for (u32 row = 0; row < call.m; ++row) {
    for (u32 column = 0; column < call.n; ++column) {
      Sum<D> sum = 0;
      for (u32 k = 0; k < call.k; ++k) sum += a[row * call.k + k] * b[k * call.n + column];
      c[row * call.n + column] += sum;
    }
  }
  VisitResult<D>(call.d, [&](u32 r, u32 s, u32 lane, u32 row, u32 column) {
    SetElement<D>(w, call.d, r, s, lane, Rounded<D, Saturates>(c[row * call.n + column]));
  });
  return op + 1;
}

// Calls visit(r, s, lane, element) for every slot of a wmma fragment.
template <typename T, typename Visit>
void VisitSlots(const std::vector<u32>& rows, u32 elements, Visit visit) {
  for (u32 slot = 0; slot < rows.size() * kPacked<T> * kLanes; ++slot) {
    const u32 i = slot / kLanes;
    visit(i / kPacked<T>, i % kPacked<T>, slot % kLanes, slot % elements);
  }
}

template <typename D, typename A, typename C, bool Saturates>
const MicroOp* WmmaOp(Warp& w, const MicroOp* op) {
  if (Lanes(w, op) == 0) return op + 1;
  if (MustMeet(w, op)) return nullptr;
  const MatrixCall& call = CallOf(w, op);
  std::array<Sum<A>, kElementsMax> a, b;
  std::array<Sum<C>, kElementsMax> c;
  VisitSlots<A>(call.a, call.m * call.k, [&](u32 r, u32 s, u32 lane, u32 element) {
    a[element] = Value(ElementOf<A>(w, call.a, r, s, lane));
  });
  VisitSlots<A>(call.b, call.k * call.n, [&](u32 r, u32 s, u32 lane, u32 element) {
    b[element] = Value(ElementOf<A>(w, call.b, r, s, lane));
  });
  VisitSlots<C>(call.c, call.m * call.n, [&](u32 r, u32 s, u32 lane, u32 element) {
    c[element] = Value(ElementOf<C>(w, call.c, r, s, lane));
  });
  for (u32 row = 0; row < call.m; ++row) {
    for (u32 column = 0; column < call.n; ++column) {
      Sum<D> sum = 0;
      for (u32 k = 0; k < call.k; ++k) sum += a[row * call.k + k] * b[k * call.n + column];
      c[row * call.n + column] += sum;
    }
  }
  VisitSlots<D>(call.d, call.m * call.n, [&](u32 r, u32 s, u32 lane, u32 element) {
    SetElement<D>(w, call.d, r, s, lane, Rounded<D, Saturates>(c[element]));
  });
  return op + 1;
}

// Address in a, elements between rows (or columns) in b, a byte offset in c. `T` is of the
// size of an element; all lanes have the same address.
template <typename T, Space S, typename Index, bool Load>
const MicroOp* WmmaMemory(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  if (MustMeet(w, op)) return nullptr;
  const MatrixCall& call = CallOf(w, op);
  const u32 first = static_cast<u32>(__builtin_ctz(lanes));
  const u64 base =
      static_cast<Index>(Get<Index>(w.frame + op->a, first) +
                         static_cast<Index>(static_cast<s64>(static_cast<s32>(op->c))));
  const u64 stride = Get<u32>(w.frame + op->b, first);
  std::array<std::byte*, kElementsMax> host;
  for (u32 row = 0; row < call.m; ++row) {
    for (u32 column = 0; column < call.n; ++column) {
      const u64 at = call.columns ? column * stride + row : row * stride + column;
      std::byte* place =
          Checked<S>(w, op, first, base + at * sizeof(T), static_cast<u32>(sizeof(T)));
      if (place == nullptr) return nullptr;
      host[row * call.n + column] = place;
    }
  }
  VisitSlots<T>(call.d, call.m * call.n, [&](u32 r, u32 s, u32 lane, u32 element) {
    if constexpr (Load) {
      SetElement<T>(w, call.d, r, s, lane, Read<T>(host[element]));
    } else {
      Write<T>(host[element], ElementOf<T>(w, call.d, r, s, lane));
    }
  });
  return op + 1;
}

// Lane l holds of an 8 x 8 matrix of halves row l / 4, columns 2 (l % 4) and the next.
using Matrix8 = std::array<std::array<u16, 8>, 8>;

u32 PairOfMatrix(const Matrix8& matrix, u32 lane, bool transposed) {
  const u32 row = lane / 4, column = 2 * (lane % 4);
  const u32 low = transposed ? matrix[column][row] : matrix[row][column];
  const u32 high = transposed ? matrix[column + 1][row] : matrix[row][column + 1];
  return high << 16 | low;
}

// Lane 8 i + j has the address of row j of matrix i.
template <Space S, typename Index, bool Load>
const MicroOp* MatrixMove(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  if (MustMeet(w, op)) return nullptr;
  const MatrixCall& call = CallOf(w, op);
  std::array<std::byte*, kLanes> rows = {};
  for (u32 lane = 0; lane < call.d.size() * 8; ++lane) {
    if ((lanes & kBit[lane]) == 0) continue;
    const u64 at =
        static_cast<Index>(Get<Index>(w.frame + op->a, lane) +
                           static_cast<Index>(static_cast<s64>(static_cast<s32>(op->c))));
    rows[lane] = Checked<S>(w, op, lane, at, 16);
    if (rows[lane] == nullptr) return nullptr;
  }
  for (u32 i = 0; i < call.d.size(); ++i) {
    Matrix8 matrix = {};
    std::byte* registers = w.frame + call.d[i];
    if constexpr (Load) {
      for (u32 row = 0; row < 8; ++row) {
        if (rows[i * 8 + row] != nullptr) std::memcpy(&matrix[row], rows[i * 8 + row], 16);
      }
      StoreLanes<u32>(registers, lanes,
                      [&](u32 l) { return PairOfMatrix(matrix, l, call.columns); });
    } else {
      for (u32 lane = 0; lane < kLanes; ++lane) {
        const u32 pair = Get<u32>(registers, lane), row = lane / 4, column = 2 * (lane % 4);
        (call.columns ? matrix[column][row] : matrix[row][column]) = static_cast<u16>(pair);
        (call.columns ? matrix[column + 1][row] : matrix[row][column + 1]) =
            static_cast<u16>(pair >> 16);
      }
      for (u32 row = 0; row < 8; ++row) {
        if (rows[i * 8 + row] != nullptr) std::memcpy(rows[i * 8 + row], &matrix[row], 16);
      }
    }
  }
  return op + 1;
}

const MicroOp* TransposeMatrix(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  if (MustMeet(w, op)) return nullptr;
  Matrix8 matrix;
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 pair = Get<u32>(w.frame + op->a, lane);
    matrix[lane / 4][2 * (lane % 4)] = static_cast<u16>(pair);
    matrix[lane / 4][2 * (lane % 4) + 1] = static_cast<u16>(pair >> 16);
  }
  StoreLanes<u32>(w.frame + op->destination, lanes,
                  [&](u32 l) { return PairOfMatrix(matrix, l, true); });
  return op + 1;
}

// Copies at once, which is when an asynchronous copy may happen at the earliest: `extra`
// bytes to shared address a, of which row c says how many come from global address b (a
// register and the offset in rows[0]); the others become zero.
template <typename Index>
const MicroOp* AsyncCopy(Warp& w, const MicroOp* op) {
  const u32 bytes = op->extra;
  const u32 lanes = Lanes(w, op);
  for (const bool checks : {true, false}) {
    for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
      const u32 l = static_cast<u32>(__builtin_ctz(rest));
      const u64 to = AddressOf<Index>(w.frame + op->a, op, l);
      const u64 from = Get<u64>(w.frame + op->b, l) +
                       static_cast<u64>(static_cast<s64>(static_cast<s32>(op->rows[0])));
      const u32 wanted = Get<u32>(w.frame + op->c, l);
      if (checks) {
        if (wanted > bytes) return RaiseFault(w, op, Fault::Kind::kInvalidOperand, l, wanted, 0);
        if (Checked<Space::kShared>(w, op, l, to, bytes) == nullptr) return nullptr;
        if (wanted == 0) continue;
        if ((from & (bytes - 1)) != 0) {
          return RaiseFault(w, op, Fault::Kind::kMisaligned, l, from, bytes);
        }
        for (u32 i = 0; i < wanted; i += wanted == bytes ? bytes : 1) {
          const u32 size = wanted == bytes ? bytes : 1;
          if (Checked<Space::kGlobal>(w, op, l, from + i, size) == nullptr) return nullptr;
        }
        continue;
      }
      std::byte* at = HostAddress<Space::kShared>(w, l, to);
      std::memset(at, 0, bytes);
      if (wanted != 0) std::memcpy(at, HostAddress<Space::kGlobal>(w, l, from), wanted);
    }
  }
  return op + 1;
}

template <typename D, typename A, typename B>
void AddMultiply(const OpSink& sink, const char* types) {
  AddOp(sink, MultiplyOp<D, A, B, false>, "mma", types);
  if constexpr (kInteger<A>) AddOp(sink, MultiplyOp<D, A, B, true>, "mma", types, "satfinite");
}
template <typename D, typename A, typename C>
void AddWmma(const OpSink& sink, const char* types) {
  AddOp(sink, WmmaOp<D, A, C, false>, "wmma.mma", types);
  if constexpr (kInteger<A>) AddOp(sink, WmmaOp<D, A, C, true>, "wmma.mma", types, "satfinite");
}
template <typename T, bool Load>
void AddWmmaMemory(const OpSink& sink, const char* type) {
  const char* name = Load ? "wmma.load" : "wmma.store";
  AddOp(sink, WmmaMemory<T, Space::kGlobal, u64, Load>, name, "global.a64", type);
  AddOp(sink, WmmaMemory<T, Space::kGeneric, u64, Load>, name, "generic.a64", type);
  AddOp(sink, WmmaMemory<T, Space::kShared, u64, Load>, name, "shared.a64", type);
  AddOp(sink, WmmaMemory<T, Space::kShared, u32, Load>, name, "shared.a32", type);
}
template <bool Load>
void AddMatrixMove(const OpSink& sink) {
  const char* name = Load ? "ldmatrix" : "stmatrix";
  AddOp(sink, MatrixMove<Space::kGeneric, u64, Load>, name, "generic.a64");
  AddOp(sink, MatrixMove<Space::kShared, u64, Load>, name, "shared.a64");
  AddOp(sink, MatrixMove<Space::kShared, u32, Load>, name, "shared.a32");
}

}  // namespace

void AddMatrixOps(const OpSink& sink) {
  AddMultiply<_Float16, _Float16, _Float16>(sink, "f16.f16.f16");
  AddMultiply<float, _Float16, _Float16>(sink, "f32.f16.f16");
  AddMultiply<float, bf16, bf16>(sink, "f32.bf16.bf16");
  AddMultiply<float, tf32, tf32>(sink, "f32.tf32.tf32");
  AddMultiply<double, double, double>(sink, "f64.f64.f64");
  AddMultiply<s32, s8, s8>(sink, "s32.s8.s8");
  AddMultiply<s32, s8, u8>(sink, "s32.s8.u8");
  AddMultiply<s32, u8, s8>(sink, "s32.u8.s8");
  AddMultiply<s32, u8, u8>(sink, "s32.u8.u8");
  AddWmma<_Float16, _Float16, _Float16>(sink, "f16.f16.f16");
  AddWmma<float, _Float16, _Float16>(sink, "f32.f16.f16");
  AddWmma<_Float16, _Float16, float>(sink, "f16.f16.f32");
  AddWmma<float, _Float16, float>(sink, "f32.f16.f32");
  AddWmma<float, bf16, float>(sink, "f32.bf16.f32");
  AddWmma<float, tf32, float>(sink, "f32.tf32.f32");
  AddWmma<double, double, double>(sink, "f64.f64.f64");
  AddWmma<s32, s8, s32>(sink, "s32.s8.s32");
  AddWmma<s32, u8, s32>(sink, "s32.u8.s32");
  AddWmmaMemory<u8, true>(sink, "b8");
  AddWmmaMemory<u16, true>(sink, "b16");
  AddWmmaMemory<u32, true>(sink, "b32");
  AddWmmaMemory<u64, true>(sink, "b64");
  AddWmmaMemory<u16, false>(sink, "b16");
  AddWmmaMemory<u32, false>(sink, "b32");
  AddWmmaMemory<u64, false>(sink, "b64");
  AddMatrixMove<true>(sink);
  AddMatrixMove<false>(sink);
  AddOp(sink, TransposeMatrix, "movmatrix");
  AddOp(sink, AsyncCopy<u64>, "cp.async.a64");
  AddOp(sink, AsyncCopy<u32>, "cp.async.a32");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
