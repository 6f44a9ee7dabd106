// SPDX-License-Identifier: Apache-2.0
// Bitwise logic, shifts, bit fields and predicate logic.
#include "server/device/cpu/executor/ops/lanes.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

template <typename T>
inline constexpr u32 kBits = sizeof(T) * 8;

template <typename T>
T And(T a, T b) {
  return static_cast<T>(a & b);
}
template <typename T>
T Or(T a, T b) {
  return static_cast<T>(a | b);
}
template <typename T>
T Xor(T a, T b) {
  return static_cast<T>(a ^ b);
}
template <typename T>
T Not(T a) {
  return static_cast<T>(~a);
}
template <typename T>
T LogicalNot(T a) {
  return a == 0 ? 1 : 0;
}

// Shifts by the width or more shift all bits out.
template <typename T>
T ShiftLeft(T a, u32 amount) {
  return amount >= kBits<T> ? T{0} : static_cast<T>(static_cast<u64>(a) << (amount & 63));
}
template <typename T>
T ShiftRight(T a, u32 amount) {
  if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(a >> (amount >= kBits<T> ? kBits<T> - 1 : amount));
  } else {
    return amount >= kBits<T> ? T{0} : static_cast<T>(a >> (amount & (kBits<T> - 1)));
  }
}

template <typename T>
u32 PopulationCount(T a) {
  if constexpr (sizeof(T) == 8)
    return static_cast<u32>(__builtin_popcountll(a));
  else
    return static_cast<u32>(__builtin_popcount(a));
}
template <typename T>
u32 LeadingZeros(T a) {
  if (a == 0) return kBits<T>;
  if constexpr (sizeof(T) == 8)
    return static_cast<u32>(__builtin_clzll(a));
  else
    return static_cast<u32>(__builtin_clz(a));
}
template <typename T>
T Reverse(T a) {
  T result = 0;
  for (u32 i = 0; i < kBits<T>; ++i) result = static_cast<T>(result << 1 | (a >> i & 1));
  return result;
}

// Returns the position of the most significant bit that differs from the sign.
template <typename T>
u32 FindBit(T a) {
  using U = std::make_unsigned_t<T>;
  U value = static_cast<U>(a);
  if (std::is_signed_v<T> && a < 0) value = static_cast<U>(~value);
  return value == 0 ? ~0u : kBits<T> - 1 - LeadingZeros(value);
}
template <typename T>
u32 FindBitShift(T a) {
  const u32 position = FindBit(a);
  return position == ~0u ? position : kBits<T> - 1 - position;
}

// Returns the lowest set bit at `from` or above after skipping `skipped` set bits.
u32 FindNextSet(u32 mask, u32 from, u32 skipped) {
  u32 bits = mask >> from << from;
  for (; skipped > 0 && bits != 0; --skipped) bits &= bits - 1;
  return bits == 0 ? ~0u : static_cast<u32>(__builtin_ctz(bits));
}
// Implements fns: finds the n-th set bit from `base`, upwards or downwards depending on the sign of
// `offset`. PTX does not define bases above 31: for these, none is found.
u32 FindNthSet(u32 mask, u32 base, s32 offset) {
  if (base > 31) return ~0u;
  if (offset == 0) return (mask >> base & 1) != 0 ? base : ~0u;
  if (offset > 0) return FindNextSet(mask, base, static_cast<u32>(offset) - 1);
  const u32 below = FindNextSet(Reverse(mask), 31 - base, ~static_cast<u32>(offset));
  return below == ~0u ? below : 31 - below;
}

template <typename T>
T ExtractField(T a, u32 position, u32 length) {
  using U = std::make_unsigned_t<T>;
  constexpr u32 kTopBit = kBits<T> - 1;
  position &= 0xff;
  length &= 0xff;
  const U value = static_cast<U>(a);
  U sign = 0;
  if (std::is_signed_v<T> && length != 0) {
    const u32 top = position + length - 1;
    sign = value >> (top > kTopBit ? kTopBit : top) & 1;
  }
  U field = position > kTopBit ? U{0} : static_cast<U>(value >> position);
  if (position + length > kTopBit + 1) {
    const u32 kept = position > kTopBit ? 0 : kTopBit + 1 - position;
    length = length < kept ? length : kept;
    if (kept < kBits<T>) field = static_cast<U>(field & ((U{1} << kept) - 1));
  }
  if (length >= kBits<T>) return static_cast<T>(field);
  const U mask = static_cast<U>((U{1} << length) - 1);
  return static_cast<T>((field & mask) | (sign != 0 ? static_cast<U>(~mask) : U{0}));
}

// Implements bfi: inserts `field` into `base`.
template <typename T>
T InsertField(T field, T base, u32 position, u32 length) {
  position &= 0xff;
  length &= 0xff;
  if (position >= kBits<T> || length == 0) return base;
  const T ones = length >= kBits<T> ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << length) - 1);
  const T mask = static_cast<T>(ones << position);
  return static_cast<T>((base & ~mask) | ((field << position) & mask));
}
template <typename T>
const MicroOp* InsertFieldOp(Warp& w, const MicroOp* op) {
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  const std::byte* c = w.frame + op->c;
  const std::byte* e = w.frame + op->extra;
  StoreLanes<T>(w.frame + op->destination, Lanes(w, op), [&](u32 l) {
    return InsertField(Get<T>(a, l), Get<T>(b, l), Get<u32>(c, l), Get<u32>(e, l));
  });
  return op + 1;
}

// Implements szext: extends the lowest `length` bits of a. The result is 0 for a length of 0, or of
// 32 with wrapping.
template <typename T>
T ExtendWrapped(T a, u32 length) {
  const u32 bits = length & 31;
  if (bits == 0) return 0;
  const u32 top = static_cast<u32>(a) << (32 - bits);
  return static_cast<T>(static_cast<T>(top) >> (32 - bits));
}
template <typename T>
T ExtendClamped(T a, u32 length) {
  return length >= 32 ? a : ExtendWrapped(a, length);
}

u32 MaskClamped(u32 position, u32 width) {
  if (position > 31 || width == 0) return 0;
  const u32 ones = width > 31 ? ~0u : (1u << width) - 1;
  return ones << position;
}
u32 MaskWrapped(u32 position, u32 width) { return MaskClamped(position & 31, width & 31); }

u32 FunnelLeft(u32 low, u32 high, u32 amount) {
  const u64 value = u64{high} << 32 | low;
  return static_cast<u32>(value << amount >> 32);
}
u32 FunnelRight(u32 low, u32 high, u32 amount) {
  return static_cast<u32>((u64{high} << 32 | low) >> amount);
}
u32 FunnelLeftWrap(u32 low, u32 high, u32 n) { return FunnelLeft(low, high, n & 31); }
u32 FunnelRightWrap(u32 low, u32 high, u32 n) { return FunnelRight(low, high, n & 31); }
u32 FunnelLeftClamp(u32 low, u32 high, u32 n) { return FunnelLeft(low, high, n > 32 ? 32 : n); }
u32 FunnelRightClamp(u32 low, u32 high, u32 n) { return FunnelRight(low, high, n > 32 ? 32 : n); }

u32 SelectByte(u64 bytes, u32 selector) {
  const u32 byte = static_cast<u32>(bytes >> (selector & 7) * 8) & 0xff;
  if ((selector & 8) == 0) return byte;
  return (byte & 0x80) != 0 ? 0xff : 0;
}
u32 Permute(u32 a, u32 b, u32 selectors) {
  const u64 bytes = u64{b} << 32 | a;
  u32 result = 0;
  for (u32 i = 0; i < 4; ++i) result |= SelectByte(bytes, selectors >> (4 * i) & 15) << (8 * i);
  return result;
}

enum class PermuteMode { kForward4, kBackward4, kReplicate8, kEdgeLeft, kEdgeRight, kReplicate16 };

template <PermuteMode Mode>
u32 PermuteBy(u32 a, u32 b, u32 control) {
  const u32 n = control & 3;
  u32 selectors = 0;
  for (u32 i = 0; i < 4; ++i) {
    u32 from = 0;
    switch (Mode) {
      case PermuteMode::kForward4:
        from = n + i;
        break;
      case PermuteMode::kBackward4:
        from = (n + 8 - i) & 7;
        break;
      case PermuteMode::kReplicate8:
        from = n;
        break;
      case PermuteMode::kEdgeLeft:
        from = i < n ? n : i;
        break;
      case PermuteMode::kEdgeRight:
        from = i > n ? n : i;
        break;
      case PermuteMode::kReplicate16:
        from = (n & 1) * 2 + (i & 1);
        break;
    }
    selectors |= from << (4 * i);
  }
  return Permute(a, b, selectors);
}

// Implements vabsdiff2 and vabsdiff4 of unsigned halves or bytes, whose differences are added to
// `c` or returned as elements.
template <u32 kElements, bool kAdds>
u32 AbsoluteDifferences(u32 a, u32 b, u32 c) {
  constexpr u32 kWidth = 32 / kElements;
  u32 sum = c, elements = 0;
  for (u32 i = 0; i < kElements; ++i) {
    const u32 x = a >> (kWidth * i) & ((1u << kWidth) - 1);
    const u32 y = b >> (kWidth * i) & ((1u << kWidth) - 1);
    const u32 difference = x < y ? y - x : x - y;
    sum += difference;
    elements |= difference << (kWidth * i);
  }
  return kAdds ? sum : elements;
}

// Implements lop3: bit i of the table is the result if (a, b, c) are the binary digits of i.
const MicroOp* ThreeInputLogic(Warp& w, const MicroOp* op) {
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  const std::byte* c = w.frame + op->c;
  const u32 table = static_cast<u32>(op->immediate);
  u32 term[8];
  for (u32 i = 0; i < 8; ++i) term[i] = (table >> i & 1) != 0 ? ~0u : 0;
  StoreLanes<u32>(w.frame + op->destination, Lanes(w, op), [&](u32 l) {
    const u32 x = Get<u32>(a, l), y = Get<u32>(b, l), z = Get<u32>(c, l);
    return (~x & ~y & ~z & term[0]) | (~x & ~y & z & term[1]) | (~x & y & ~z & term[2]) |
           (~x & y & z & term[3]) | (x & ~y & ~z & term[4]) | (x & ~y & z & term[5]) |
           (x & y & ~z & term[6]) | (x & y & z & term[7]);
  });
  return op + 1;
}

enum class Logic { kAnd, kOr, kXor, kNot, kMove };

template <Logic L>
const MicroOp* PredicateLogic(Warp& w, const MicroOp* op) {
  const u32 a = Predicate(w, op->a);
  const u32 b = Predicate(w, op->b);
  const u32 value = L == Logic::kAnd   ? a & b
                    : L == Logic::kOr  ? a | b
                    : L == Logic::kXor ? a ^ b
                    : L == Logic::kNot ? ~a
                                       : a;
  SetPredicate(w, op->destination, Lanes(w, op), value);
  return op + 1;
}

template <typename T>
void AddLogic(const OpSink& sink, const char* type) {
  AddOp(sink, kRows, Binary<T, T, T, And<T>>, "and", type);
  AddOp(sink, kRows, Binary<T, T, T, Or<T>>, "or", type);
  AddOp(sink, kRows, Binary<T, T, T, Xor<T>>, "xor", type);
  AddOp(sink, kRows, Unary<T, T, Not<T>>, "not", type);
  AddOp(sink, kRows, Unary<T, T, LogicalNot<T>>, "cnot", type);
  AddOp(sink, kRows, Binary<T, T, u32, ShiftLeft<T>>, "shl", type);
  AddOp(sink, kRows, Binary<T, T, u32, ShiftRight<T>>, "shr", type);
}

template <typename T>
void AddCounts(const OpSink& sink, const char* type) {
  AddOp(sink, kRows, Unary<u32, T, PopulationCount<T>>, "popc", type);
  AddOp(sink, kRows, Unary<u32, T, LeadingZeros<T>>, "clz", type);
  AddOp(sink, kRows, UnaryScalar<T, T, Reverse<T>>, "brev", type);
  AddOp(sink, kFifthRow, InsertFieldOp<T>, "bfi", type);
}

template <typename T>
void AddFields(const OpSink& sink, const char* type) {
  AddOp(sink, kRows, Unary<u32, T, FindBit<T>>, "bfind", type);
  AddOp(sink, kRows, Unary<u32, T, FindBitShift<T>>, "bfind.shiftamt", type);
  AddOp(sink, kRows, Ternary<T, T, u32, u32, ExtractField<T>>, "bfe", type);
}

}  // namespace

void AddBitOps(const OpSink& sink) {
  static constexpr OpRule kPredicateLogic =
      kRows.Predicates(OpRule::kDestination | OpRule::kA | OpRule::kB);
  AddLogic<u16>(sink, "b16");
  AddLogic<u32>(sink, "b32");
  AddLogic<u64>(sink, "b64");
  AddOp(sink, kRows, Binary<u16, u16, u32, ShiftRight<u16>>, "shr.u16");
  AddOp(sink, kRows, Binary<u32, u32, u32, ShiftRight<u32>>, "shr.u32");
  AddOp(sink, kRows, Binary<u64, u64, u32, ShiftRight<u64>>, "shr.u64");
  AddOp(sink, kRows, Binary<s16, s16, u32, ShiftRight<s16>>, "shr.s16");
  AddOp(sink, kRows, Binary<s32, s32, u32, ShiftRight<s32>>, "shr.s32");
  AddOp(sink, kRows, Binary<s64, s64, u32, ShiftRight<s64>>, "shr.s64");
  AddCounts<u32>(sink, "b32");
  AddCounts<u64>(sink, "b64");
  AddFields<u32>(sink, "u32");
  AddFields<s32>(sink, "s32");
  AddFields<u64>(sink, "u64");
  AddFields<s64>(sink, "s64");
  AddOp(sink, kRows, Ternary<u32, u32, u32, s32, FindNthSet>, "fns.b32");
  AddOp(sink, kRows, Binary<u32, u32, u32, ExtendClamped<u32>>, "szext.clamp.u32");
  AddOp(sink, kRows, Binary<s32, s32, u32, ExtendClamped<s32>>, "szext.clamp.s32");
  AddOp(sink, kRows, Binary<u32, u32, u32, ExtendWrapped<u32>>, "szext.wrap.u32");
  AddOp(sink, kRows, Binary<s32, s32, u32, ExtendWrapped<s32>>, "szext.wrap.s32");
  AddOp(sink, kRows, Binary<u32, u32, u32, MaskClamped>, "bmsk.clamp.b32");
  AddOp(sink, kRows, Binary<u32, u32, u32, MaskWrapped>, "bmsk.wrap.b32");
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, FunnelLeftWrap>, "shf.l.wrap.b32");
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, FunnelRightWrap>, "shf.r.wrap.b32");
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, FunnelLeftClamp>, "shf.l.clamp.b32");
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, FunnelRightClamp>, "shf.r.clamp.b32");
  using enum PermuteMode;
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, Permute>, "prmt.b32");
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, PermuteBy<kForward4>>, "prmt.b32.f4e");
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, PermuteBy<kBackward4>>, "prmt.b32.b4e");
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, PermuteBy<kReplicate8>>, "prmt.b32.rc8");
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, PermuteBy<kEdgeLeft>>, "prmt.b32.ecl");
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, PermuteBy<kEdgeRight>>, "prmt.b32.ecr");
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, PermuteBy<kReplicate16>>, "prmt.b32.rc16");
  AddOp(sink, kRows, ThreeInputLogic, "lop3.b32");
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, AbsoluteDifferences<2, false>>,
        "vabsdiff2.u32.u32.u32");
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, AbsoluteDifferences<2, true>>,
        "vabsdiff2.u32.u32.u32.add");
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, AbsoluteDifferences<4, false>>,
        "vabsdiff4.u32.u32.u32");
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, AbsoluteDifferences<4, true>>,
        "vabsdiff4.u32.u32.u32.add");
  AddOp(sink, kPredicateLogic, PredicateLogic<Logic::kAnd>, "and.pred");
  AddOp(sink, kPredicateLogic, PredicateLogic<Logic::kOr>, "or.pred");
  AddOp(sink, kPredicateLogic, PredicateLogic<Logic::kXor>, "xor.pred");
  AddOp(sink, kPredicateLogic, PredicateLogic<Logic::kNot>, "not.pred");
  AddOp(sink, kPredicateLogic, PredicateLogic<Logic::kMove>, "mov.pred");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
