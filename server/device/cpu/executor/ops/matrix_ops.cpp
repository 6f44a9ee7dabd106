// SPDX-License-Identifier: Apache-2.0
// Operations of a warp on small matrices, and asynchronous copies.
//
// Fragments of mma (PTX ISA, Matrix Fragments for mma). Let g = lane / 4, t = lane % 4, with P
// elements in a register. Element s of register r is:
//   * In A of 16 rows: row g + 8 (r % 2), k = t P + s + 4 P (r / 2).
//   * In A of 8 rows: row g, k = t P + s + 4 P r.
//   * In B: k = t P + s + 4 P r, column g.
//   * In C and D: row g + 8 (r / 2), column 2 t + r % 2; pairs of f16 share a register.
// PTX does not define the layout of wmma fragments. Here element s of register r of a lane is slot
// (r P + s) 32 + lane, and slot i holds element i % (rows columns) of the matrix in row-major
// order.
//
// Products are exact. Sums are computed in double (integers: modulo 2^32) and rounded once.
#include <array>
#include <cstring>

#include "server/device/cpu/executor/ops/matrix.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

constexpr u32 kElementsMax = 32 * 16;

// Costs of matrix operations as numbers of rounds of a short loop, as Charged expects them. A
// product takes 2 to 20 us, a load or store of a fragment 1 to 3 us.
constexpr s32 kProductBranches = 128, kFragmentBranches = 32;

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

template <typename A>
__attribute__((noinline)) void ReadA(const Warp& w, const MatrixCall& call, Sum<A>* a) {
  constexpr u32 kPack = kPacked<A>;
  const u32 halves = call.m / 8;
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 g = lane / 4, t = lane % 4;
    for (u32 s = 0; s < kPack; ++s) {
      for (u32 r = 0; r < call.a.size(); ++r) {
        const u32 row = g + 8 * (r % halves), k = t * kPack + s + 4 * kPack * (r / halves);
        a[row * call.k + k] = Value(GetElement<A>(w, call.a, r, s, lane));
      }
    }
  }
}
template <typename B>
__attribute__((noinline)) void ReadB(const Warp& w, const MatrixCall& call, Sum<B>* b) {
  constexpr u32 kPack = kPacked<B>;
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 g = lane / 4, t = lane % 4;
    for (u32 s = 0; s < kPack; ++s) {
      for (u32 r = 0; r < call.b.size(); ++r) {
        b[(t * kPack + s + 4 * kPack * r) * call.n + g] =
            Value(GetElement<B>(w, call.b, r, s, lane));
      }
    }
  }
}
template <typename D>
__attribute__((noinline)) void ReadC(const Warp& w, const MatrixCall& call, Sum<D>* c) {
  VisitResult<D>(call.c, [&](u32 r, u32 s, u32 lane, u32 row, u32 column) {
    c[row * call.n + column] = Value(GetElement<D>(w, call.c, r, s, lane));
  });
}
// Adds the product to c.
template <typename S>
__attribute__((noinline)) void Multiply(const MatrixCall& call, const S* a, const S* b, S* c) {
  for (u32 row = 0; row < call.m; ++row) {
    for (u32 column = 0; column < call.n; ++column) {
      S sum = 0;
      for (u32 k = 0; k < call.k; ++k) sum += a[row * call.k + k] * b[k * call.n + column];
      c[row * call.n + column] += sum;
    }
  }
}
template <typename D, bool Saturates>
__attribute__((noinline)) void WriteD(Warp& w, const MatrixCall& call, const Sum<D>* c) {
  VisitResult<D>(call.d, [&](u32 r, u32 s, u32 lane, u32 row, u32 column) {
    SetElement<D>(w, call.d, r, s, lane, Rounded<D, Saturates>(c[row * call.n + column]));
  });
}

// Calls functions for each type separately, so that they are not compiled for each combination of
// types.
template <typename D, typename A, typename B, bool Saturates>
const MicroOp* MultiplyOp(Warp& w, const MicroOp* op) {
  static_assert(std::is_same_v<Sum<A>, Sum<B>> && std::is_same_v<Sum<A>, Sum<D>>);
  if (Lanes(w, op) == 0) return op + 1;
  if (MustMeet(w, op)) return nullptr;
  const MatrixCall& call = GetCall(w, op);
  std::array<Sum<A>, kElementsMax> a, b, c;
  ReadA<A>(w, call, a.data());
  ReadB<B>(w, call, b.data());
  ReadC<D>(w, call, c.data());
  Multiply(call, a.data(), b.data(), c.data());
  WriteD<D, Saturates>(w, call, c.data());
  return Charged(w, op, kProductBranches);
}

// Calls visit(r, s, lane, element) for every slot of a wmma fragment.
template <typename T, typename Visit>
void VisitSlots(const std::vector<u32>& rows, u32 elements, Visit visit) {
  for (u32 slot = 0; slot < rows.size() * kPacked<T> * kLanes; ++slot) {
    const u32 i = slot / kLanes;
    visit(i / kPacked<T>, i % kPacked<T>, slot % kLanes, slot % elements);
  }
}

// Reads the elements of a fragment in row-major order.
template <typename T>
__attribute__((noinline)) void ReadSlots(const Warp& w, const std::vector<u32>& rows, u32 elements,
                                         Sum<T>* out) {
  VisitSlots<T>(rows, elements, [&](u32 r, u32 s, u32 lane, u32 element) {
    out[element] = Value(GetElement<T>(w, rows, r, s, lane));
  });
}
template <typename D, bool Saturates>
__attribute__((noinline)) void WriteSlots(Warp& w, const MatrixCall& call, const Sum<D>* c) {
  VisitSlots<D>(call.d, call.m * call.n, [&](u32 r, u32 s, u32 lane, u32 element) {
    SetElement<D>(w, call.d, r, s, lane, Rounded<D, Saturates>(c[element]));
  });
}

template <typename D, typename A, typename C, bool Saturates>
const MicroOp* WmmaOp(Warp& w, const MicroOp* op) {
  static_assert(std::is_same_v<Sum<A>, Sum<C>> && std::is_same_v<Sum<A>, Sum<D>>);
  if (Lanes(w, op) == 0) return op + 1;
  if (MustMeet(w, op)) return nullptr;
  const MatrixCall& call = GetCall(w, op);
  std::array<Sum<A>, kElementsMax> a, b, c;
  ReadSlots<A>(w, call.a, call.m * call.k, a.data());
  ReadSlots<A>(w, call.b, call.k * call.n, b.data());
  ReadSlots<C>(w, call.c, call.m * call.n, c.data());
  Multiply(call, a.data(), b.data(), c.data());
  WriteSlots<D, Saturates>(w, call, c.data());
  return Charged(w, op, kProductBranches);
}

// Stores the host addresses of a matrix's elements in `host`, in row-major order. Returns false
// after raising a fault. Row a holds the device address of the matrix, row b the number of elements
// between its rows (or columns); c is a byte offset. `bytes` is the size of an element. Uses the
// address of the first active lane, because PTX requires the same address in all lanes.
template <Space S, typename Index>
__attribute__((noinline)) bool FragmentAddresses(Warp& w, const MicroOp* op, u32 bytes,
                                                 std::byte** host) {
  const MatrixCall& call = GetCall(w, op);
  const u32 first = static_cast<u32>(__builtin_ctz(Lanes(w, op)));
  const u64 base =
      static_cast<Index>(Get<Index>(w.frame + op->a, first) +
                         static_cast<Index>(static_cast<s64>(static_cast<s32>(op->c))));
  const u64 stride = Get<u32>(w.frame + op->b, first);
  for (u32 row = 0; row < call.m; ++row) {
    for (u32 column = 0; column < call.n; ++column) {
      const u64 at = call.columns ? column * stride + row : row * stride + column;
      std::byte* place = Checked<S>(w, op, first, base + at * bytes, bytes);
      if (place == nullptr) return false;
      host[row * call.n + column] = place;
    }
  }
  return true;
}
template <typename T, bool Load>
__attribute__((noinline)) void MoveFragment(Warp& w, const MatrixCall& call,
                                            std::byte* const* host) {
  VisitSlots<T>(call.d, call.m * call.n, [&](u32 r, u32 s, u32 lane, u32 element) {
    if constexpr (Load) {
      SetElement<T>(w, call.d, r, s, lane, Read<T>(host[element]));
    } else {
      Write<T>(host[element], GetElement<T>(w, call.d, r, s, lane));
    }
  });
}
template <typename T, Space S, typename Index, bool Load>
const MicroOp* WmmaMemory(Warp& w, const MicroOp* op) {
  if (Lanes(w, op) == 0) return op + 1;
  if (MustMeet(w, op)) return nullptr;
  std::array<std::byte*, kElementsMax> host;
  if (!FragmentAddresses<S, Index>(w, op, sizeof(T), host.data())) return nullptr;
  MoveFragment<T, Load>(w, GetCall(w, op), host.data());
  return Charged(w, op, kFragmentBranches);
}

// An 8 x 8 matrix of halves. Lane l holds columns 2 (l % 4) and 2 (l % 4) + 1 of row l / 4.
using Matrix8 = std::array<std::array<u16, 8>, 8>;

u32 PairOfMatrix(const Matrix8& matrix, u32 lane, bool transposed) {
  const u32 row = lane / 4, column = 2 * (lane % 4);
  const u32 low = transposed ? matrix[column][row] : matrix[row][column];
  const u32 high = transposed ? matrix[column + 1][row] : matrix[row][column + 1];
  return high << 16 | low;
}

// Implements ldmatrix and stmatrix. Lane 8 i + j has the address of row j of matrix i.
template <Space S, typename Index, bool Load>
const MicroOp* MatrixMove(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  if (MustMeet(w, op)) return nullptr;
  const MatrixCall& call = GetCall(w, op);
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
  return Charged(w, op, kFragmentBranches);
}

const MicroOp* TransposeMatrix(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  if (MustMeet(w, op)) return nullptr;
  Matrix8 matrix;
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 pair = Get<u32>(w.frame + op->a, lane);
    matrix[lane / 4][std::size_t{2} * (lane % 4)] = static_cast<u16>(pair);
    matrix[lane / 4][std::size_t{2} * (lane % 4) + 1] = static_cast<u16>(pair >> 16);
  }
  StoreLanes<u32>(w.frame + op->destination, lanes,
                  [&](u32 l) { return PairOfMatrix(matrix, l, true); });
  return op + 1;
}

// Writes `extra` bytes to the shared address in row a: copies the number of bytes in row c from the
// global address in row b plus the offset rows[0], and fills the rest with zeros. Copies
// immediately, because PTX permits an asynchronous copy to complete at any time before the program
// waits for it.
template <typename Index>
const MicroOp* AsyncCopy(Warp& w, const MicroOp* op) {
  const u32 bytes = op->extra;
  const u32 lanes = Lanes(w, op);
  for (const bool checks : {true, false}) {
    for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
      const u32 l = static_cast<u32>(__builtin_ctz(rest));
      const u64 to = GetAddress<Index>(w.frame + op->a, op, l);
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
  AddOp(sink, OpRule(OpRule::kMma), MultiplyOp<D, A, B, false>, "mma", types);
  if constexpr (kInteger<A>)
    AddOp(sink, OpRule(OpRule::kMma), MultiplyOp<D, A, B, true>, "mma", types, "satfinite");
}
template <typename D, typename A, typename C>
void AddWmma(const OpSink& sink, const char* types) {
  AddOp(sink, OpRule(OpRule::kWmma), WmmaOp<D, A, C, false>, "wmma.mma", types);
  if constexpr (kInteger<A>)
    AddOp(sink, OpRule(OpRule::kWmma), WmmaOp<D, A, C, true>, "wmma.mma", types, "satfinite");
}
template <typename T, bool Load>
void AddWmmaMemory(const OpSink& sink, const char* type) {
  // c is an address offset.
  static constexpr OpRule kFragment = OpRule(OpRule::kWmmaMemory).Free(OpRule::kC);
  const char* name = Load ? "wmma.load" : "wmma.store";
  AddOp(sink, kFragment, WmmaMemory<T, Space::kGlobal, u64, Load>, name, "global.a64", type);
  AddOp(sink, kFragment, WmmaMemory<T, Space::kGeneric, u64, Load>, name, "generic.a64", type);
  AddOp(sink, kFragment, WmmaMemory<T, Space::kShared, u64, Load>, name, "shared.a64", type);
  AddOp(sink, kFragment, WmmaMemory<T, Space::kShared, u32, Load>, name, "shared.a32", type);
}
template <bool Load>
void AddMatrixMove(const OpSink& sink) {
  // c is an address offset.
  static constexpr OpRule kMove = OpRule(OpRule::kMatrixMove).Free(OpRule::kC);
  const char* name = Load ? "ldmatrix" : "stmatrix";
  AddOp(sink, kMove, MatrixMove<Space::kGeneric, u64, Load>, name, "generic.a64");
  AddOp(sink, kMove, MatrixMove<Space::kShared, u64, Load>, name, "shared.a64");
  AddOp(sink, kMove, MatrixMove<Space::kShared, u32, Load>, name, "shared.a32");
}

}  // namespace

void AddMatrixOps(const OpSink& sink) {
  static constexpr OpRule kCopy = OpRule(OpRule::kAsyncCopy).Free(OpRule::kRow0);
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
  AddOp(sink, kRows, TransposeMatrix, "movmatrix");
  AddOp(sink, kCopy, AsyncCopy<u64>, "cp.async.a64");
  AddOp(sink, kCopy, AsyncCopy<u32>, "cp.async.a32");
  AddWarpgroupOps(sink);
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
