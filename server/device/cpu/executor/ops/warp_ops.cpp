// SPDX-License-Identifier: Apache-2.0
// Operations across the lanes of a warp: shfl, vote, match, redux, activemask, elect.
#include "server/device/cpu/executor/ops/lanes.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

// The member mask operand as the first active lane has it.
GPUSHARED_INLINE u32 Members(const Warp& w, u32 row, u32 lanes) {
  return Get<u32>(w.frame + row, static_cast<u32>(__builtin_ctz(lanes)));
}

// True: the handler must return null, since lanes named in the mask are elsewhere.
GPUSHARED_INLINE bool MustWait(Warp& w, const MicroOp* op, u32 members) {
  if (__builtin_expect((members & ~w.active & ~w.exited) == 0, 1)) return false;
  return WaitForMembers(w, op, members);
}

enum class Shuffle { kUp, kDown, kButterfly, kIndex };

// Member mask in rows[1]; predicate destination in rows[0], 0 when there is none.
template <Shuffle S>
const MicroOp* ShuffleOp(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  if (MustWait(w, op, Members(w, op->rows[1], lanes))) return nullptr;
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  const std::byte* c = w.frame + op->c;
  alignas(64) u32 result[kLanes];
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
    result[l] = Get<u32>(a, static_cast<u32>(inside ? from : lane) & 31);
    in_range |= inside ? kBit[l] : 0;
  }
  StoreLanes<u32>(w.frame + op->destination, lanes, [&](u32 l) { return result[l]; });
  if (op->rows[0] != 0) SetPredicate(w, op->rows[0], lanes, in_range);
  return op + 1;
}

enum class Vote { kAll, kAny, kUniform, kBallot };

// Predicate in a; member mask in b.
template <Vote V>
const MicroOp* VoteOp(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  const u32 members = Members(w, op->b, lanes);
  if (MustWait(w, op, members)) return nullptr;
  const u32 voters = lanes & members;
  const u32 yes = Predicate(w, op->a) & voters;
  if constexpr (V == Vote::kBallot) {
    StoreLanes<u32>(w.frame + op->destination, lanes, [&](u32) { return yes; });
  } else {
    const bool result = V == Vote::kAll   ? yes == voters
                        : V == Vote::kAny ? yes != 0
                                          : yes == 0 || yes == voters;
    SetPredicate(w, op->destination, lanes, result ? kAllLanes : 0);
  }
  return op + 1;
}

// Value in a, member mask in b; the predicate of match.all in rows[0].
template <typename T, bool All>
const MicroOp* MatchOp(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  const u32 members = Members(w, op->b, lanes);
  if (MustWait(w, op, members)) return nullptr;
  const std::byte* a = w.frame + op->a;
  const u32 voters = lanes & members;
  alignas(64) u32 result[kLanes] = {};
  for (u32 l = 0; l < kLanes; ++l) {
    const T mine = Get<T>(a, l);
    for (u32 other = 0; other < kLanes; ++other) {
      if ((voters & kBit[other]) != 0 && Get<T>(a, other) == mine) result[l] |= kBit[other];
    }
  }
  if constexpr (All) {
    const bool same = result[__builtin_ctz(lanes)] == voters;
    if (op->rows[0] != 0) SetPredicate(w, op->rows[0], lanes, same ? kAllLanes : 0);
    StoreLanes<u32>(w.frame + op->destination, lanes, [&](u32) { return same ? voters : 0u; });
  } else {
    StoreLanes<u32>(w.frame + op->destination, lanes, [&](u32 l) { return result[l]; });
  }
  return op + 1;
}

enum class Reduction { kAdd, kMin, kMax, kAnd, kOr, kXor };

template <typename T, Reduction R>
const MicroOp* ReduceOp(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  const u32 members = Members(w, op->b, lanes);
  if (MustWait(w, op, members)) return nullptr;
  const std::byte* a = w.frame + op->a;
  const u32 first = static_cast<u32>(__builtin_ctz(lanes));
  T result = Get<T>(a, first);
  for (u32 rest = lanes & members & ~kBit[first]; rest != 0; rest &= rest - 1) {
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
  return op + 1;
}

const MicroOp* ActiveMask(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  StoreLanes<u32>(w.frame + op->destination, lanes, [&](u32) { return w.active; });
  return op + 1;
}

const MicroOp* WarpBarrier(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  if (lanes != 0 && MustWait(w, op, Members(w, op->a, lanes))) return nullptr;
  return op + 1;
}

// One lane of the members is chosen: the lowest. Mask in a, predicate in rows[0].
const MicroOp* Elect(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  const u32 members = Members(w, op->a, lanes);
  if (MustWait(w, op, members)) return nullptr;
  const u32 voters = lanes & members;
  const u32 leader = voters == 0 ? 0 : static_cast<u32>(__builtin_ctz(voters));
  StoreLanes<u32>(w.frame + op->destination, lanes, [&](u32) { return leader; });
  if (op->rows[0] != 0) SetPredicate(w, op->rows[0], lanes, 1u << leader);
  return op + 1;
}

}  // namespace

void AddWarpWideOps(const OpSink& sink) {
  AddOp(sink, ShuffleOp<Shuffle::kUp>, "shfl.up");
  AddOp(sink, ShuffleOp<Shuffle::kDown>, "shfl.down");
  AddOp(sink, ShuffleOp<Shuffle::kButterfly>, "shfl.bfly");
  AddOp(sink, ShuffleOp<Shuffle::kIndex>, "shfl.idx");
  AddOp(sink, VoteOp<Vote::kAll>, "vote.all");
  AddOp(sink, VoteOp<Vote::kAny>, "vote.any");
  AddOp(sink, VoteOp<Vote::kUniform>, "vote.uni");
  AddOp(sink, VoteOp<Vote::kBallot>, "vote.ballot");
  AddOp(sink, MatchOp<u32, false>, "match.any.b32");
  AddOp(sink, MatchOp<u64, false>, "match.any.b64");
  AddOp(sink, MatchOp<u32, true>, "match.all.b32");
  AddOp(sink, MatchOp<u64, true>, "match.all.b64");
  AddOp(sink, ReduceOp<u32, Reduction::kAdd>, "redux.add.u32");
  AddOp(sink, ReduceOp<s32, Reduction::kAdd>, "redux.add.s32");
  AddOp(sink, ReduceOp<u32, Reduction::kMin>, "redux.min.u32");
  AddOp(sink, ReduceOp<s32, Reduction::kMin>, "redux.min.s32");
  AddOp(sink, ReduceOp<u32, Reduction::kMax>, "redux.max.u32");
  AddOp(sink, ReduceOp<s32, Reduction::kMax>, "redux.max.s32");
  AddOp(sink, ReduceOp<u32, Reduction::kAnd>, "redux.and.b32");
  AddOp(sink, ReduceOp<u32, Reduction::kOr>, "redux.or.b32");
  AddOp(sink, ReduceOp<u32, Reduction::kXor>, "redux.xor.b32");
  AddOp(sink, ActiveMask, "activemask.b32");
  AddOp(sink, WarpBarrier, "bar.warp");
  AddOp(sink, Elect, "elect");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
