// SPDX-License-Identifier: Apache-2.0
// cvt between integer types, and from integers to f32 and f64.
#include "server/device/cpu/executor/ops/lanes.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

template <typename D, typename A>
D Truncate(A a) {
  return static_cast<D>(a);
}

template <typename T>
struct Range {
  static constexpr T kMin =
      std::is_signed_v<T> ? static_cast<T>(T{1} << (sizeof(T) * 8 - 1)) : T{0};
  static constexpr T kMax = static_cast<T>(~kMin);
};

template <typename D, typename A>
D Saturate(A a) {
  if constexpr (std::is_signed_v<A>) {
    const auto value = static_cast<s64>(a);
    if constexpr (std::is_signed_v<D>) {
      if (value < s64{Range<D>::kMin}) return Range<D>::kMin;
      if (value > s64{Range<D>::kMax}) return Range<D>::kMax;
    } else {
      if (value < 0) return 0;
      if (static_cast<u64>(value) > u64{Range<D>::kMax}) return Range<D>::kMax;
    }
  } else {
    if (u64{a} > static_cast<u64>(Range<D>::kMax)) return Range<D>::kMax;
  }
  return static_cast<D>(a);
}

// Implements cvt.pack: a above b, each with `Bits` bits, and the lower bits of c above both.
template <u32 Bits, bool Signed>
u32 PackSaturated(s32 a, s32 b, u32 c) {
  constexpr s32 kHigh = (s32{1} << (Signed ? Bits - 1 : Bits)) - 1;
  constexpr s32 kLow = Signed ? -kHigh - 1 : 0;
  constexpr u32 kMask = (1u << Bits) - 1;
  const auto part = [](s32 value) {
    return static_cast<u32>(value < kLow ? kLow : value > kHigh ? kHigh : value) & kMask;
  };
  return static_cast<u32>(u64{c} << (2 * Bits)) | part(a) << Bits | part(b);
}

template <u32 Bits>
void AddPack(const OpSink& sink, const char* of_signed, const char* of_unsigned) {
  AddOp(sink, kRows, Ternary<u32, s32, s32, u32, PackSaturated<Bits, true>>, "cvt.pack", of_signed);
  AddOp(sink, kRows, Ternary<u32, s32, s32, u32, PackSaturated<Bits, false>>, "cvt.pack",
        of_unsigned);
}

template <typename D, typename A, bool Sat>
__attribute__((noinline)) const MicroOp* ToFloat(Warp& w, const MicroOp* op) {
  const std::byte* a = w.frame + op->a;
  StoreLanes<D>(w.frame + op->destination, Lanes(w, op), [&](u32 l) {
    D value = static_cast<D>(Get<A>(a, l));
    if constexpr (Sat) {
      value = value > D{0} ? value : D{0};
      value = value < D{1} ? value : D{1};
    }
    return value;
  });
  return op + 1;
}

template <typename D, typename A>
inline constexpr bool kHoldsAll = std::is_signed_v<D> == std::is_signed_v<A>
                                      ? sizeof(D) >= sizeof(A)
                                      : std::is_signed_v<D> && sizeof(D) > sizeof(A);

// Handler of a conversion without saturation. Conversions with equal results share a handler:
// truncation does not depend on the sign of the source, and a result that fills its register has
// the same bits whether it is signed or not.
template <typename D, typename A>
struct Cut {
  static constexpr bool kIsCut = sizeof(D) <= sizeof(A);
  using From = std::conditional_t<!kIsCut, A, std::conditional_t<sizeof(A) == 8, u64, u32>>;
  using To = std::conditional_t<sizeof(D) == 8, u64, std::conditional_t<sizeof(D) == 4, u32, D>>;
  static constexpr Handler kHandler = Unary<To, From, Truncate<To, From>>;
};

template <typename D, typename A>
void AddPair(const OpSink& sink, const char* to, const char* from) {
  AddOp(sink, kRows, Cut<D, A>::kHandler, "cvt", to, from);
  if constexpr (!kHoldsAll<D, A>)
    AddOp(sink, kRows, UnarySeldom<D, A, Saturate<D, A>>, "cvt.sat", to, from);
}

template <typename D, typename A>
void AddToFloat(const OpSink& sink, const char* to, const char* from) {
  AddOp(sink, kRows, kRounded<Rounding::kNearest, ToFloat<D, A, false>>, "cvt.rn", to, from);
  AddOp(sink, kRows, kRounded<Rounding::kZero, ToFloat<D, A, false>>, "cvt.rz", to, from);
  AddOp(sink, kRows, kRounded<Rounding::kDown, ToFloat<D, A, false>>, "cvt.rm", to, from);
  AddOp(sink, kRows, kRounded<Rounding::kUp, ToFloat<D, A, false>>, "cvt.rp", to, from);
  AddOp(sink, kRows, kRounded<Rounding::kNearest, ToFloat<D, A, true>>, "cvt.rn.sat", to, from);
}

template <typename A>
void AddFrom(const OpSink& sink, const char* from) {
  AddPair<u8, A>(sink, "u8", from);
  AddPair<s8, A>(sink, "s8", from);
  AddPair<u16, A>(sink, "u16", from);
  AddPair<s16, A>(sink, "s16", from);
  AddPair<u32, A>(sink, "u32", from);
  AddPair<s32, A>(sink, "s32", from);
  AddPair<u64, A>(sink, "u64", from);
  AddPair<s64, A>(sink, "s64", from);
  AddToFloat<float, A>(sink, "f32", from);
  AddToFloat<double, A>(sink, "f64", from);
}

}  // namespace

void AddConvertOps(const OpSink& sink) {
  AddFrom<u8>(sink, "u8");
  AddFrom<s8>(sink, "s8");
  AddFrom<u16>(sink, "u16");
  AddFrom<s16>(sink, "s16");
  AddFrom<u32>(sink, "u32");
  AddFrom<s32>(sink, "s32");
  AddFrom<u64>(sink, "u64");
  AddFrom<s64>(sink, "s64");
  AddPack<2>(sink, "s2", "u2");
  AddPack<4>(sink, "s4", "u4");
  AddPack<8>(sink, "s8", "u8");
  AddPack<16>(sink, "s16", "u16");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
