// SPDX-License-Identifier: Apache-2.0
// Video instructions, following the pseudo-code of the PTX ISA: intermediate values are not
// truncated to 32 bits. Every value of MicroOp::immediate is well-defined.
#include "server/device/cpu/executor/ops/lanes.h"
#include "server/device/cpu/executor/video_number.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

__extension__ using s128 = __int128;

enum class Video {
  kAdd,
  kSubtract,
  kAbsoluteDifference,
  kMinimum,
  kMaximum,
  kAverage,
  kCompare,
  kShiftLeft,
  kShiftRight
};
enum Second : u32 { kMerge, kPlus, kLower, kHigher };  // Same order as ptx::VideoForm.

GPUSHARED_INLINE u32 Field(const MicroOp* op, u32 position, u32 bits) {
  return static_cast<u32>(static_cast<u64>(op->immediate) >> position) & ((1u << bits) - 1);
}
GPUSHARED_INLINE bool Flag(const MicroOp* op, u32 position) { return Field(op, position, 1) != 0; }

// The part of a word that a selector refers to.
struct Part {
  u32 left, bits;  // Distance of the part's top bit from the top of the word, and the part's size.
  bool is_signed;

  Part(u32 number, bool has_sign) : is_signed(has_sign) {
    bits = number < 4 ? 8 : number < 6 ? 16 : 32;
    left = number < 4 ? 24 - 8 * number : number < 6 ? 16 - 16 * (number - 4) : 0;
  }
  GPUSHARED_INLINE s64 Of(u32 word) const {
    const u32 top = word << left;
    return is_signed ? s64{static_cast<s32>(top) >> (32 - bits)} : s64{top >> (32 - bits)};
  }
  GPUSHARED_INLINE u32 In(u32 value, u32 others) const {
    const u32 position = 32 - bits - left;
    const u32 mask = (bits == 32 ? ~0u : (1u << bits) - 1) << position;
    return (value << position & mask) | (others & ~mask);
  }
};

GPUSHARED_INLINE s64 Clamped(s64 value, u32 bits, bool is_signed) {
  const s64 high = (s64{1} << (is_signed ? bits - 1 : bits)) - 1;
  const s64 low = is_signed ? -high - 1 : 0;
  return value < low ? low : value > high ? high : value;
}

GPUSHARED_INLINE bool Compares(s64 a, s64 b, u32 relation) {
  switch (relation) {
    case 0:
      return a == b;
    case 1:
      return a != b;
    case 2:
      return a < b;
    case 3:
      return a <= b;
    case 4:
      return a > b;
    default:
      return a >= b;
  }
}

// Computes a scalar operation on 33-bit numbers. `mode` is the relation of a comparison, or whether
// a distance wraps.
template <Video V>
GPUSHARED_INLINE s64 Primary(s64 a, s64 b, u32 mode) {
  if constexpr (V == Video::kAdd) return a + b;
  if constexpr (V == Video::kSubtract) return a - b;
  if constexpr (V == Video::kAbsoluteDifference) return a < b ? b - a : a - b;
  if constexpr (V == Video::kMinimum) return a < b ? a : b;
  if constexpr (V == Video::kMaximum) return a < b ? b : a;
  if constexpr (V == Video::kAverage) return (a + b + (a + b >= 0 ? 1 : 0)) >> 1;
  if constexpr (V == Video::kCompare) return Compares(a, b, mode) ? 1 : 0;
  const s64 distance = mode != 0 ? b & 31 : b < 0 || b > 32 ? 32 : b;
  if constexpr (V == Video::kShiftRight) return a >> distance;
  // The result has 34 bits, the highest of which is its sign.
  if constexpr (V == Video::kShiftLeft) {
    return static_cast<s64>(static_cast<u64>(a) << distance << 30) >> 30;
  }
}

template <Video V>
const MicroOp* Single(Warp& w, const MicroOp* op) {
  const Part first(Field(op, video::kAPart, 3), Flag(op, video::kASigned));
  const Part second(Field(op, video::kBPart, 3), Flag(op, video::kBSigned));
  const bool is_signed = Flag(op, video::kResultSigned);
  const Part result(Field(op, video::kResultPart, 3), is_signed);
  const Part whole(video::kWhole, is_signed);
  const bool saturates = Flag(op, video::kSaturates);
  const u32 mode =
      V == Video::kCompare ? Field(op, video::kRelation, 3) : Field(op, video::kWraps, 1);
  const u32 then = Field(op, video::kSecond, 2);
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  const std::byte* c = w.frame + op->c;
  StoreSomeLanes<u32>(w.frame + op->destination, Lanes(w, op), [&](u32 l) {
    s64 value = Primary<V>(first.Of(Get<u32>(a, l)), second.Of(Get<u32>(b, l)), mode);
    if (saturates) value = Clamped(value, result.bits, is_signed);
    const u32 third = Get<u32>(c, l);
    const s64 other = whole.Of(third);
    if (then == kPlus) value += other;
    if (then == kLower) value = value < other ? value : other;
    if (then == kHigher) value = value < other ? other : value;
    return result.In(static_cast<u32>(value), third);
  });
  return op + 1;
}

// Implements vmad: (a * b) + c, with the product or c negated or 1 added, shifted to the right.
const MicroOp* MultiplyAdd(Warp& w, const MicroOp* op) {
  const Part first(Field(op, video::kAPart, 3), Flag(op, video::kASigned));
  const Part second(Field(op, video::kBPart, 3), Flag(op, video::kBSigned));
  const bool negates_product = Flag(op, video::kNegatesProduct);
  const bool negates_c = Flag(op, video::kNegatesC);
  const bool is_signed = first.is_signed || second.is_signed || negates_product || negates_c;
  const Part whole(video::kWhole, is_signed);
  const u32 one = negates_product || negates_c || Flag(op, video::kAddsOne) ? 1 : 0;
  const u32 scale = Field(op, video::kScale, 4);
  const bool saturates = Flag(op, video::kSaturates);
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  const std::byte* c = w.frame + op->c;
  StoreSomeLanes<u32>(w.frame + op->destination, Lanes(w, op), [&](u32 l) {
    const s128 product = s128{first.Of(Get<u32>(a, l))} * second.Of(Get<u32>(b, l));
    const u32 third = Get<u32>(c, l);
    const s64 addend = whole.Of(negates_c ? ~third : third);
    const s128 sum = ((negates_product ? ~product : product) + addend + one) >> scale;
    if (!saturates) return static_cast<u32>(sum);
    constexpr s64 kOutside = s64{1} << 40;
    const s64 near = sum > kOutside    ? kOutside
                     : sum < -kOutside ? -kOutside
                                       : static_cast<s64>(sum);
    return static_cast<u32>(Clamped(near, 32, is_signed));
  });
  return op + 1;
}

// Computes a SIMD operation on halves or bytes selected from the elements of {a, b}.
template <Video V, u32 kElements>
const MicroOp* Several(Warp& w, const MicroOp* op) {
  constexpr u32 kBits = 32 / kElements;
  constexpr u32 kMask = (1u << kBits) - 1;
  const bool is_a_signed = Flag(op, video::kASigned), is_b_signed = Flag(op, video::kBSigned);
  const bool is_signed = Flag(op, video::kResultSigned), saturates = Flag(op, video::kSaturates);
  const bool adds = Field(op, video::kSecond, 2) == kPlus;
  const u32 relation = Field(op, video::kRelation, 3);
  const u32 kept = Field(op, video::kKept, kElements);
  const auto element = [](u64 pair, u32 number, bool has_sign) {
    const u32 value = static_cast<u32>(pair >> (kBits * number)) & kMask;
    const u32 top = value << (32 - kBits);
    return has_sign ? s64{static_cast<s32>(top) >> (32 - kBits)} : s64{value};
  };
  u32 from_a[kElements], from_b[kElements];
  for (u32 i = 0; i < kElements; ++i) {
    from_a[i] = Field(op, video::kAElements + 3 * i, 3) % (2 * kElements);
    from_b[i] = Field(op, video::kBElements + 3 * i, 3) % (2 * kElements);
  }
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  const std::byte* c = w.frame + op->c;
  StoreSomeLanes<u32>(w.frame + op->destination, Lanes(w, op), [&](u32 l) {
    const u64 pair = u64{Get<u32>(b, l)} << 32 | Get<u32>(a, l);
    u32 result = Get<u32>(c, l);
    for (u32 i = 0; i < kElements; ++i) {
      if ((kept >> i & 1) == 0) continue;
      s64 value = Primary<V>(element(pair, from_a[i], is_a_signed),
                             element(pair, from_b[i], is_b_signed), relation);
      if (saturates) value = Clamped(value, kBits, is_signed);
      const u32 mask = kMask << (kBits * i);
      if (adds) {
        result += static_cast<u32>(value);
      } else {
        result = (result & ~mask) | (static_cast<u32>(value) << (kBits * i) & mask);
      }
    }
    return result;
  });
  return op + 1;
}

template <Video V>
void AddSeveral(const OpSink& sink, const char* of_two, const char* of_four) {
  AddOp(sink, kRows, Several<V, 2>, of_two);
  AddOp(sink, kRows, Several<V, 4>, of_four);
}

}  // namespace

void AddVideoOps(const OpSink& sink) {
  AddOp(sink, kRows, Single<Video::kAdd>, "vadd");
  AddOp(sink, kRows, Single<Video::kSubtract>, "vsub");
  AddOp(sink, kRows, Single<Video::kAbsoluteDifference>, "vabsdiff");
  AddOp(sink, kRows, Single<Video::kMinimum>, "vmin");
  AddOp(sink, kRows, Single<Video::kMaximum>, "vmax");
  AddOp(sink, kRows, Single<Video::kCompare>, "vset");
  AddOp(sink, kRows, Single<Video::kShiftLeft>, "vshl");
  AddOp(sink, kRows, Single<Video::kShiftRight>, "vshr");
  AddOp(sink, kRows, MultiplyAdd, "vmad");
  AddSeveral<Video::kAdd>(sink, "vadd2", "vadd4");
  AddSeveral<Video::kSubtract>(sink, "vsub2", "vsub4");
  AddSeveral<Video::kAbsoluteDifference>(sink, "vabsdiff2", "vabsdiff4");
  AddSeveral<Video::kMinimum>(sink, "vmin2", "vmin4");
  AddSeveral<Video::kMaximum>(sink, "vmax2", "vmax4");
  AddSeveral<Video::kAverage>(sink, "vavrg2", "vavrg4");
  AddSeveral<Video::kCompare>(sink, "vset2", "vset4");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
