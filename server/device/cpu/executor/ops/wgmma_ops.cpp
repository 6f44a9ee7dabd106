// SPDX-License-Identifier: Apache-2.0
// Products of a warpgroup (wgmma). Each of its four warps computes its own 16 rows when it issues
// the instruction, which is the earliest time at which the hardware may compute them.
//
// Matrices in shared memory (PTX ISA, Asynchronous Warpgroup Level Matrix Shared Memory Layout)
// consist of chunks of 16 bytes. `stride` and `leading` are the two offsets of a descriptor, and W
// is the width of its swizzle in bytes. If the K elements of a matrix are contiguous, chunk c of
// row r begins at
//   (r / 8) stride + c leading + (r % 8) 16                       without swizzle,
//   (r / 8) stride + c 16 + (r % 8) W                             with swizzle.
// In a transposed matrix, chunk c of column k begins at
//   c stride + (k / 8) leading + (k % 8) 16                       without swizzle,
//   (c / (W / 16)) leading + (c % (W / 16)) 16 + (k / 8) stride + (k % 8) W   with swizzle.
// The swizzle then exchanges chunks: it XORs the log2(W / 16) address bits from bit 4 on with those
// from bit 7 on.
//
// Registers of A hold the same elements as in mma.m16n8. D: element i of a lane is row
// lane / 4 + 8 (i / 2 % 2), column 8 (i / 4) + 2 (lane % 4) + i % 2.
#include <array>
#include <cstring>

#include "server/device/cpu/executor/ops/matrix.h"
#include "server/device/cpu/executor/warpgroup.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

constexpr u32 kWarpRows = 16;  // Rows of the product that one warp computes.
constexpr u32 kChunkBytes = 16;

// Cost of a product with 8 columns, as a number of rounds of a short loop (Charged).
constexpr s32 kBranchesPerTile = 64;

struct Descriptor {
  u64 start, leading, stride;
  u32 base_offset, swizzle;

  explicit Descriptor(u64 bits)
      : start(Field(bits, 0)),
        leading(Field(bits, 16)),
        stride(Field(bits, 32)),
        base_offset(static_cast<u32>(bits >> 49) & 7),
        swizzle(static_cast<u32>(bits >> 62)) {}
  static u64 Field(u64 bits, u32 at) { return (bits >> at & 0x3fff) << 4; }

  // Returns the number of address bits that the swizzle changes. The values 1, 2 and 3 of `swizzle`
  // are widths of 128, 64 and 32 bytes.
  u32 SwizzleBits() const { return swizzle == 0 ? 0 : 4 - swizzle; }

  // Returns the address of a chunk: `row` counts along M or N, `depth` along K, both in elements,
  // of which a chunk has `per_chunk`.
  u64 ChunkAt(u32 row, u32 depth, u32 per_chunk, bool transposed) const {
    const u32 bits = SwizzleBits();
    const u32 chunks = 1u << bits;  // Chunks per line of the swizzle.
    const u32 line = transposed ? depth : row, chunk = (transposed ? row : depth) / per_chunk;
    u64 at = start + u64{line % 8} * chunks * kChunkBytes;
    if (!transposed) {
      at += u64{line / 8} * stride + chunk * (bits == 0 ? leading : kChunkBytes);
    } else if (bits == 0) {
      at += u64{chunk} * stride + u64{line / 8} * leading;
    } else {
      at += u64{chunk / chunks} * leading + u64{chunk % chunks} * kChunkBytes +
            u64{line / 8} * stride;
    }
    return at ^ ((at >> 7 & (chunks - 1)) << 4);
  }
};

// Reads `rows` by `depth` elements to out[row * depth + k]. Returns false after raising a fault.
template <typename T>
__attribute__((noinline)) bool ReadMatrix(Warp& w, const MicroOp* op, u64 descriptor_bits,
                                          u32 first_row, u32 rows, u32 depth, bool transposed,
                                          Sum<T>* out) {
  const Descriptor descriptor(descriptor_bits);
  const u32 lane = static_cast<u32>(__builtin_ctz(Lanes(w, op)));
  if (descriptor.base_offset != 0) {
    RaiseFault(w, op, Fault::Kind::kInvalidOperand, lane, descriptor.base_offset, 0);
    return false;
  }
  constexpr u32 kPerChunk = kChunkBytes / sizeof(T);
  const u32 row_step = transposed ? kPerChunk : 1, depth_step = transposed ? 1 : kPerChunk;
  for (u32 row = 0; row < rows; row += row_step) {
    for (u32 k = 0; k < depth; k += depth_step) {
      const u64 at = descriptor.ChunkAt(first_row + row, k, kPerChunk, transposed);
      const std::byte* const from = Checked<Space::kShared>(w, op, lane, at, kChunkBytes);
      if (from == nullptr) return false;
      for (u32 i = 0; i < kPerChunk; ++i) {
        const T element = Read<T>(from + i * sizeof(T));
        out[(transposed ? row + i : row) * depth + (transposed ? k : k + i)] = Value(element);
      }
    }
  }
  return true;
}

template <typename T>
__attribute__((noinline)) void ReadRegisters(const Warp& w, const std::vector<u32>& rows, u32 depth,
                                             Sum<T>* out) {
  constexpr u32 kPack = kPacked<T>;
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 g = lane / 4, t = lane % 4;
    for (u32 i = 0; i < rows.size() * kPack; ++i) {
      const u32 r = i / kPack, s = i % kPack;
      const u32 row = g + 8 * (r % 2), k = t * kPack + s + 4 * kPack * (r / 2);
      out[row * depth + k] = Value(GetElement<T>(w, rows, r, s, lane));
    }
  }
}

// Computes D = a b, or D = a b + D if `adds`. Both matrices store their K elements contiguously.
template <typename D, bool Saturates>
__attribute__((noinline)) void MultiplyTo(Warp& w, const MicroOp* op, const Sum<D>* a,
                                          const Sum<D>* b, bool adds) {
  const MatrixCall& call = GetCall(w, op);
  const bool negates = (op->extra & kNegates) != 0;
  constexpr u32 kPack = kPacked<D>;
  for (u32 lane = 0; lane < kLanes; ++lane) {
    for (u32 i = 0; i < call.d.size() * kPack; ++i) {
      const u32 row = lane / 4 + 8 * (i / 2 % 2), column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
      Sum<D> sum = 0;
      for (u32 k = 0; k < call.k; ++k) sum += a[row * call.k + k] * b[column * call.k + k];
      if (negates) sum = -sum;
      if (adds) sum += Value(GetElement<D>(w, call.d, i / kPack, i % kPack, lane));
      SetElement<D>(w, call.d, i / kPack, i % kPack, lane, Rounded<D, Saturates>(sum));
    }
  }
}

// D is in rows d of the call. Rows a (unless A is in registers) and b hold descriptors; the
// predicate c selects whether D is added.
template <typename D, typename A, typename B, bool Saturates>
const MicroOp* WarpgroupMultiply(Warp& w, const MicroOp* op) {
  static_assert(std::is_same_v<Sum<A>, Sum<B>> && std::is_same_v<Sum<A>, Sum<D>>);
  const u32 lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  if (MustMeet(w, op)) return nullptr;
  const MatrixCall& call = GetCall(w, op);
  const u32 first = static_cast<u32>(__builtin_ctz(lanes));
  alignas(64) std::array<Sum<A>, std::size_t{kWarpRows} * kWarpgroupDepthMax> a;
  alignas(64) std::array<Sum<B>, std::size_t{kWarpgroupColumnsMax} * kWarpgroupDepthMax> b;
  if (!call.a.empty()) {
    ReadRegisters<A>(w, call.a, call.k, a.data());
  } else if (!ReadMatrix<A>(w, op, Get<u64>(w.frame + op->a, first), w.index % 4 * kWarpRows,
                            kWarpRows, call.k, (op->extra & kTransposesA) != 0, a.data())) {
    return nullptr;
  }
  if (!ReadMatrix<B>(w, op, Get<u64>(w.frame + op->b, first), 0, call.n, call.k,
                     (op->extra & kTransposesB) != 0, b.data())) {
    return nullptr;
  }
  const bool adds = (Predicate(w, op->c) & kBit[first]) != 0;
  MultiplyTo<D, Saturates>(w, op, a.data(), b.data(), adds);
  return Charged(w, op, kBranchesPerTile * static_cast<s32>(call.n / 8));
}

template <typename D, typename A, typename B>
void AddProduct(const OpSink& sink, const char* types) {
  static constexpr OpRule kRule = OpRule(OpRule::kWarpgroup).Predicates(OpRule::kC);
  AddOp(sink, kRule, WarpgroupMultiply<D, A, B, false>, "wgmma", types);
  if constexpr (kInteger<A>) {
    AddOp(sink, kRule, WarpgroupMultiply<D, A, B, true>, "wgmma", types, "satfinite");
  }
}

}  // namespace

void AddWarpgroupOps(const OpSink& sink) {
  AddProduct<_Float16, _Float16, _Float16>(sink, "f16.f16.f16");
  AddProduct<float, _Float16, _Float16>(sink, "f32.f16.f16");
  AddProduct<float, bf16, bf16>(sink, "f32.bf16.bf16");
  AddProduct<float, tf32, tf32>(sink, "f32.tf32.tf32");
  AddProduct<s32, s8, s8>(sink, "s32.s8.s8");
  AddProduct<s32, s8, u8>(sink, "s32.s8.u8");
  AddProduct<s32, u8, s8>(sink, "s32.u8.s8");
  AddProduct<s32, u8, u8>(sink, "s32.u8.u8");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
