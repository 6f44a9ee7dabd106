// SPDX-License-Identifier: Apache-2.0
// Operations across the lanes of a warp: shfl, vote, match, redux, activemask, elect.
#include "server/device/cpu/executor/ops/lanes.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

// Executes the instruction for `lanes`: all lanes that have the same member mask and will arrive.
using GroupFunction = void (*)(Warp& w, const MicroOp* op, u32 lanes);

GPUSHARED_INLINE const u32* GetMembers(const Warp& w, const MicroOp* op) {
  return reinterpret_cast<const u32*>(w.frame + op->rows[1]);
}

u32 LanesThatName(const u32* named, u32 lanes, u32 members) {
  u32 same = 0;
  for (u32 l = 0; l < kLanes; ++l) same |= named[l] == members ? kBit[l] : 0;
  return same & lanes;
}

// Handles lanes of one instruction with different members, or with members that have not arrived.
__attribute__((noinline)) const MicroOp* InGroups(Warp& w, const MicroOp* op, u32 lanes,
                                                  GroupFunction group) {
  const u32* named = GetMembers(w, op);
  bool waits = false;
  for (u32 left = lanes; left != 0;) {
    const u32 members = named[__builtin_ctz(left)];
    const u32 same = LanesThatName(named, lanes, members);
    if (const u32 non_members = same & ~members; non_members != 0) {
      return RaiseFault(w, op, Fault::Kind::kNotAMember,
                        static_cast<u32>(__builtin_ctz(non_members)), members, non_members);
    }
    waits |= (members & ~w.exited) != same;
    left &= ~same;
  }
  if (waits) return WaitAt(w, op, Pause::kConverging);
  // Results may overwrite the row of the members, so only lanes without a result are read.
  for (u32 left = lanes; left != 0;) {
    const u32 same = LanesThatName(named, left, named[__builtin_ctz(left)]);
    group(w, op, same);
    left &= ~same;
  }
  return op + 1;
}

// Handles an instruction in which lanes that name the same members act together and wait for each
// other (PTX ISA: "the same qualifiers and same membermask value").
template <GroupFunction Group>
const MicroOp* Together(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  const u32* named = GetMembers(w, op);
  const u32 members = named[__builtin_ctz(lanes)];
  u32 different = 0;
  if (__builtin_expect(lanes == kAllLanes, 1)) {
    for (u32 l = 0; l < kLanes; ++l) different |= named[l] ^ members;
  } else {
    for (u32 l = 0; l < kLanes; ++l) {
      different |= (lanes & kBit[l]) != 0 ? named[l] ^ members : 0;
    }
  }
  if (__builtin_expect(different != 0 || (members & ~w.exited) != lanes, 0)) {
    return InGroups(w, op, lanes, Group);
  }
  Group(w, op, lanes);
  return op + 1;
}

enum class Shuffle { kUp, kDown, kButterfly, kIndex };

// rows[0] is the destination of the predicate, 0 if there is none.
template <Shuffle S>
void ShuffleOp(Warp& w, const MicroOp* op, u32 lanes) {
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  const std::byte* c = w.frame + op->c;
  alignas(64) u32 source[kLanes], result[kLanes];
  u32 in_range = 0;
  for (u32 l = 0; l < kLanes; ++l) {
    const u32 control = Get<u32>(c, l);
    const s32 clamp = static_cast<s32>(control & 31), segment = static_cast<s32>(control >> 8 & 31);
    const s32 lane = static_cast<s32>(l), amount = static_cast<s32>(Get<u32>(b, l) & 31);
    const s32 lowest = lane & segment;
    const s32 highest = lowest | (clamp & ~segment);
    s32 from = 0;
    bool inside = false;
    switch (S) {
      case Shuffle::kUp:
        from = lane - amount;
        inside = from >= highest;
        break;
      case Shuffle::kDown:
        from = lane + amount;
        inside = from <= highest;
        break;
      case Shuffle::kButterfly:
        from = lane ^ amount;
        inside = from <= highest;
        break;
      case Shuffle::kIndex:
        from = lowest | (amount & ~segment);
        inside = from <= highest;
        break;
    }
    source[l] = static_cast<u32>(inside ? from : lane) & 31;
    in_range |= inside ? kBit[l] : 0;
  }
  for (u32 l = 0; l < kLanes; ++l) result[l] = Get<u32>(a, source[l]);
  if (__builtin_expect(lanes != kAllLanes, 0)) {
    // PTX does not define the value read from an inactive lane; here it is 0.
    for (u32 l = 0; l < kLanes; ++l) result[l] = (lanes >> source[l] & 1) != 0 ? result[l] : 0;
  }
  StoreLanes<u32>(w.frame + op->destination, lanes, [&](u32 l) { return result[l]; });
  if (op->rows[0] != 0) SetPredicate(w, op->rows[0], lanes, in_range);
}

enum class Vote { kAll, kAny, kUniform, kBallot };

// a is the predicate.
template <Vote V>
void VoteOp(Warp& w, const MicroOp* op, u32 lanes) {
  const u32 yes = Predicate(w, op->a) & lanes;
  if constexpr (V == Vote::kBallot) {
    StoreLanes<u32>(w.frame + op->destination, lanes, [&](u32) { return yes; });
  } else {
    const bool result = V == Vote::kAll   ? yes == lanes
                        : V == Vote::kAny ? yes != 0
                                          : yes == 0 || yes == lanes;
    SetPredicate(w, op->destination, lanes, result ? kAllLanes : 0);
  }
}

// a is the value; rows[0] is the predicate of match.all.
template <typename T, bool All>
void MatchOp(Warp& w, const MicroOp* op, u32 lanes) {
  const std::byte* a = w.frame + op->a;
  alignas(64) u32 result[kLanes] = {};
  const u32 looked_at = All ? lanes & (0u - lanes) : lanes;
  for (u32 rest = looked_at; rest != 0; rest &= rest - 1) {
    const u32 l = static_cast<u32>(__builtin_ctz(rest));
    const T mine = Get<T>(a, l);
    u32 same = 0;
    for (u32 other = 0; other < kLanes; ++other) {
      same |= Get<T>(a, other) == mine ? kBit[other] : 0;
    }
    result[l] = same & lanes;
  }
  if constexpr (All) {
    const bool same = result[__builtin_ctz(lanes)] == lanes;
    if (op->rows[0] != 0) SetPredicate(w, op->rows[0], lanes, same ? kAllLanes : 0);
    StoreLanes<u32>(w.frame + op->destination, lanes, [&](u32) { return same ? lanes : 0u; });
  } else {
    StoreLanes<u32>(w.frame + op->destination, lanes, [&](u32 l) { return result[l]; });
  }
}

enum class Reduction { kAdd, kMin, kMax, kAnd, kOr, kXor };

template <typename T, Reduction R>
void ReduceOp(Warp& w, const MicroOp* op, u32 lanes) {
  const std::byte* a = w.frame + op->a;
  const u32 first = static_cast<u32>(__builtin_ctz(lanes));
  T result = Get<T>(a, first);
  for (u32 rest = lanes & ~kBit[first]; rest != 0; rest &= rest - 1) {
    const T value = Get<T>(a, static_cast<u32>(__builtin_ctz(rest)));
    switch (R) {
      case Reduction::kAdd:
        result = static_cast<T>(u32(result) + u32(value));
        break;
      case Reduction::kMin:
        result = value < result ? value : result;
        break;
      case Reduction::kMax:
        result = value > result ? value : result;
        break;
      case Reduction::kAnd:
        result &= value;
        break;
      case Reduction::kOr:
        result |= value;
        break;
      case Reduction::kXor:
        result ^= value;
        break;
    }
  }
  StoreLanes<T>(w.frame + op->destination, lanes, [&](u32) { return result; });
}

const MicroOp* ActiveMask(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  StoreLanes<u32>(w.frame + op->destination, lanes, [&](u32) { return lanes; });
  return op + 1;
}

void WarpBarrier(Warp& /*w*/, const MicroOp* /*op*/, u32 /*lanes*/) {}

// Selects the lowest of the members. rows[0] is the predicate.
void Elect(Warp& w, const MicroOp* op, u32 lanes) {
  const u32 leader = static_cast<u32>(__builtin_ctz(lanes));
  StoreLanes<u32>(w.frame + op->destination, lanes, [&](u32) { return leader; });
  if (op->rows[0] != 0) SetPredicate(w, op->rows[0], lanes, kBit[leader]);
}

}  // namespace

void AddWarpWideOps(const OpSink& sink) {
  static constexpr OpRule kReduce(OpRule::kGroup);
  static constexpr OpRule kMatch = kReduce.Predicates(OpRule::kRow0);
  static constexpr OpRule kMatchWide = OpRule(OpRule::kGroup, kReadsWide).Predicates(OpRule::kRow0);
  static constexpr OpRule kShuffle = OpRule(OpRule::kGroup, kReadsThree).Predicates(OpRule::kRow0);
  static constexpr OpRule kBallot = OpRule(OpRule::kGroup, kReadsPredicate).Predicates(OpRule::kA);
  static constexpr OpRule kVote = OpRule(OpRule::kGroup, kReadsPredicate | kWritesPredicate)
                                      .Predicates(OpRule::kDestination | OpRule::kA);
  AddOp(sink, kShuffle, Together<ShuffleOp<Shuffle::kUp>>, "shfl.up");
  AddOp(sink, kShuffle, Together<ShuffleOp<Shuffle::kDown>>, "shfl.down");
  AddOp(sink, kShuffle, Together<ShuffleOp<Shuffle::kButterfly>>, "shfl.bfly");
  AddOp(sink, kShuffle, Together<ShuffleOp<Shuffle::kIndex>>, "shfl.idx");
  AddOp(sink, kVote, Together<VoteOp<Vote::kAll>>, "vote.all");
  AddOp(sink, kVote, Together<VoteOp<Vote::kAny>>, "vote.any");
  AddOp(sink, kVote, Together<VoteOp<Vote::kUniform>>, "vote.uni");
  AddOp(sink, kBallot, Together<VoteOp<Vote::kBallot>>, "vote.ballot");
  AddOp(sink, kMatch, Together<MatchOp<u32, false>>, "match.any.b32");
  AddOp(sink, kMatchWide, Together<MatchOp<u64, false>>, "match.any.b64");
  AddOp(sink, kMatch, Together<MatchOp<u32, true>>, "match.all.b32");
  AddOp(sink, kMatchWide, Together<MatchOp<u64, true>>, "match.all.b64");
  AddOp(sink, kReduce, Together<ReduceOp<u32, Reduction::kAdd>>, "redux.add.u32");
  AddOp(sink, kReduce, Together<ReduceOp<s32, Reduction::kAdd>>, "redux.add.s32");
  AddOp(sink, kReduce, Together<ReduceOp<u32, Reduction::kMin>>, "redux.min.u32");
  AddOp(sink, kReduce, Together<ReduceOp<s32, Reduction::kMin>>, "redux.min.s32");
  AddOp(sink, kReduce, Together<ReduceOp<u32, Reduction::kMax>>, "redux.max.u32");
  AddOp(sink, kReduce, Together<ReduceOp<s32, Reduction::kMax>>, "redux.max.s32");
  AddOp(sink, kReduce, Together<ReduceOp<u32, Reduction::kAnd>>, "redux.and.b32");
  AddOp(sink, kReduce, Together<ReduceOp<u32, Reduction::kOr>>, "redux.or.b32");
  AddOp(sink, kReduce, Together<ReduceOp<u32, Reduction::kXor>>, "redux.xor.b32");
  AddOp(sink, kRows, ActiveMask, "activemask.b32");
  AddOp(sink, OpRule(OpRule::kGroup, kWritesNothing), Together<WarpBarrier>, "bar.warp");
  AddOp(sink, kMatch, Together<Elect>, "elect");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
