// SPDX-License-Identifier: Apache-2.0
// Lanes of one warp that name different members in one instruction act as separate groups, on
// whichever path they arrive. Tests every form with random partitions of a warp.
#include <array>
#include <bit>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/executor/launcher.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;

struct LaneInput {
  u64 a = 0;
  u32 b = 0, c = 0;
  u32 members = 0;  // Mask of its group; 0 if the lane does not participate.
  u32 way = 0;      // The path on which it arrives, below kWays.
  u32 peer = 0;     // A lane of its group.
  u32 unused = 0;
};
struct LaneOutput {
  u32 d = 0, q = 0;
  bool operator==(const LaneOutput&) const = default;
};
using Case = std::array<LaneInput, 32>;
constexpr u32 kWays = 4;
constexpr LaneOutput kUntouched = {0x5a5a5a5a, 0};

// $g is replaced by a guard, or by nothing.
struct MemberForm {
  std::string text;
  std::function<LaneOutput(const Case&, u32 lane)> reference;
};

// How lanes reach the instruction: all at once, from both sides of a branch that each contain it,
// in different rounds of a loop, or through two guarded copies.
enum class Shape { kConverged, kSides, kRounds, kGuards };
constexpr std::array<std::pair<Shape, u32>, 4> kCasesOfShape = {{{Shape::kConverged, 40'960},
                                                                 {Shape::kSides, 20'480},
                                                                 {Shape::kRounds, 20'480},
                                                                 {Shape::kGuards, 20'480}}};

std::string WithGuard(std::string text, const std::string& guard) {
  for (std::size_t at = 0; (at = text.find("$g", at)) != std::string::npos;) {
    text.replace(at, 2, guard);
  }
  return text;
}

std::string Shaped(const std::string& text, Shape shape, const std::string& number) {
  const std::string plain = WithGuard(text, "") + "\n";
  switch (shape) {
    case Shape::kConverged:
      return plain;
    case Shape::kSides:
      return "@%odd bra ODD" + number + ";\n" + plain + "bra MET" + number + ";\nODD" + number +
             ":\n" + plain + "MET" + number + ":\n";
    case Shape::kRounds:
      return "mov.u32 %round, 0;\nROUND" + number +
             ":\nsetp.ne.u32 %skip, %round, %way;\n@%skip bra NEXT" + number + ";\n" + plain +
             "NEXT" + number + ":\nadd.u32 %round, %round, 1;\nsetp.lt.u32 %skip, %round, " +
             std::to_string(kWays) + ";\n@%skip bra ROUND" + number + ";\n";
    case Shape::kGuards:
      return WithGuard(text, "@%odd ") + "\n" + WithGuard(text, "@!%odd ") + "\n";
  }
  return "";
}

std::string KernelText(const std::vector<MemberForm>& forms, Shape shape) {
  const std::string stride = std::to_string(forms.size() * sizeof(LaneOutput));
  std::string text = R"(.version 9.0
.target sm_90
.address_size 64
.visible .entry check(.param .u64 in, .param .u64 out)
{
  .shared .align 4 .b32 slots[128];
  .reg .pred %odd, %idle, %skip, %q, %p;
  .reg .b32 %thread, %block, %a, %b, %c, %m, %way, %peer, %round, %d, %bit, %slot, %from;
  .reg .b64 %in, %out, %wide;
  mov.u32 %thread, %tid.x;
  mov.u32 %slot, slots;
  mad.lo.u32 %slot, %thread, 4, %slot;
  mov.u32 %block, %ctaid.x;
  mad.lo.u32 %block, %block, 128, %thread;
  ld.param.u64 %in, [in];
  mad.wide.u32 %in, %block, 32, %in;
  ld.param.u64 %out, [out];
  mad.wide.u32 %out, %block, )" +
                     stride + R"(, %out;
  ld.global.u64 %wide, [%in];
  ld.global.u32 %a, [%in];
  ld.global.u32 %b, [%in+8];
  ld.global.u32 %c, [%in+12];
  ld.global.u32 %m, [%in+16];
  ld.global.u32 %way, [%in+20];
  ld.global.u32 %peer, [%in+24];
  and.b32 %from, %thread, 31;
  sub.u32 %from, %peer, %from;
  mad.lo.u32 %from, %from, 4, %slot;
  and.b32 %bit, %way, 1;
  setp.ne.u32 %odd, %bit, 0;
  and.b32 %bit, %a, 1;
  setp.ne.u32 %p, %bit, 0;
  setp.eq.u32 %idle, %m, 0;
  @%idle bra DONE;
)";
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const std::string offset = std::to_string(i * sizeof(LaneOutput));
    const std::string second = std::to_string(i * sizeof(LaneOutput) + 4);
    text += "mov.b32 %d, 0x5a5a5a5a;\nsetp.ne.u32 %q, %d, %d;\n" +
            Shaped(forms[i].text, shape, std::to_string(i)) + "st.global.u32 [%out+" + offset +
            "], %d;\nselp.u32 %bit, 1, 0, %q;\nst.global.u32 [%out+" + second + "], %bit;\n";
  }
  return text + "DONE:\n  ret;\n}\n";
}

u32 Draw(std::mt19937& random, u32 below) { return static_cast<u32>(random() % below); }

// Puts each lane into one of up to eight groups, or into none.
Case RandomCase(std::mt19937& random) {
  const u32 groups = 1 + Draw(random, 8), idle = Draw(random, 3), spread = 1 + Draw(random, 5);
  std::array<u32, 8> members = {};
  std::array<u32, 32> group_of;
  for (u32 l = 0; l < 32; ++l) {
    group_of[l] = idle == 0 && Draw(random, 6) == 0 ? 8 : Draw(random, groups);
    if (group_of[l] < 8) members[group_of[l]] |= 1u << l;
  }
  Case lanes;
  for (u32 l = 0; l < 32; ++l) {
    LaneInput& lane = lanes[l];
    lane.a = Draw(random, spread);
    if (spread == 5) lane.a = u64{random()} << 32 | random();
    if (spread == 4 && Draw(random, 2) == 0) lane.a |= u64{1} << 32;
    lane.b = Draw(random, 40);
    lane.c = Draw(random, 2) == 0 ? 0x1f : Draw(random, 0x2000) & 0x1f1f;
    lane.way = Draw(random, kWays);
    if (group_of[l] == 8) continue;
    lane.members = members[group_of[l]];
    u32 peer = l;
    for (u32 hop = Draw(random, 4); hop != 0; --hop) {
      do peer = (peer + 1) % 32;
      while ((lane.members >> peer & 1) == 0);
    }
    lane.peer = peer;
  }
  return lanes;
}

class Members : public PerFlavour {
 protected:
  void Check(const std::vector<MemberForm>& forms) {
    std::mt19937 random(15);
    for (const auto& [shape, cases] : kCasesOfShape) {
      CheckShape(forms, shape, GetSweep(cases), random);
    }
  }

  // A kernel of one warp that runs `code`; lane l has l in %lane.
  executor::RunOutcome RunOneWarp(const std::string& code, std::array<u32, 32>* results,
                                  u32 threads = 32) {
    Launcher launcher(65536, GetParam());
    launcher.Load(
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry check(.param .u64 out)\n{\n"
        "  .reg .pred %p, %q, %low;\n  .reg .b32 %lane, %d, %m;\n  .reg .b64 %out;\n"
        "  ld.param.u64 %out, [out];\n  mov.u32 %lane, %tid.x;\n"
        "  mad.wide.u32 %out, %lane, 4, %out;\n  setp.lt.u32 %low, %lane, 16;\n"
        "  selp.b32 %m, 0x0000ffff, 0xffff0000, %low;\n  mov.u32 %d, 0;\n" +
        code + "\n  st.global.u32 [%out], %d;\n  ret;\n}\n");
    u32* out = launcher.Allocate<u32>(32);
    const auto outcome = launcher.Run("check", {1, 1, 1}, {threads, 1, 1}, out);
    if (results != nullptr) std::copy(out, out + 32, results->begin());
    return outcome;
  }

 private:
  void CheckShape(const std::vector<MemberForm>& forms, Shape shape, u32 cases,
                  std::mt19937& random) {
    constexpr u32 kChunk = 1024;
    Launcher launcher(std::uint64_t{16} << 20, GetParam());
    launcher.Load(KernelText(forms, shape));
    Case* in = launcher.Allocate<Case>(kChunk);
    LaneOutput* out = launcher.Allocate<LaneOutput>(kChunk * 32 * forms.size());
    for (u32 done = 0; done < cases; done += kChunk) {
      for (u32 i = 0; i < kChunk; ++i) in[i] = RandomCase(random);
      const auto outcome = launcher.Run("check", {kChunk / 4, 1, 1}, {128, 1, 1}, in, out);
      ASSERT_FALSE(outcome.fault) << outcome.fault->message;
      for (u32 i = 0; i < kChunk * 32; ++i) {
        const Case& lanes = in[i / 32];
        if (lanes[i % 32].members == 0) continue;
        for (std::size_t f = 0; f < forms.size(); ++f) {
          const LaneOutput wanted = forms[f].reference(lanes, i % 32);
          const LaneOutput& got = out[i * forms.size() + f];
          ASSERT_TRUE(got == wanted)
              << forms[f].text << " shape " << static_cast<int>(shape) << " case " << done + i / 32
              << " lane " << i % 32 << " members " << std::hex << lanes[i % 32].members << ": d "
              << got.d << " instead of " << wanted.d << ", q " << got.q << " instead of "
              << wanted.q;
        }
      }
    }
  }
};

bool IsIn(u32 members, u32 lane) { return (members >> lane & 1) != 0; }

// Returns the members of a lane that satisfy a condition.
template <typename Condition>
u32 Those(const Case& lanes, u32 lane, Condition condition) {
  u32 those = 0;
  for (u32 l = 0; l < 32; ++l) {
    those |= IsIn(lanes[lane].members, l) && condition(lanes[l]) ? 1u << l : 0;
  }
  return those;
}

// The pseudo-code of PTX ISA, shfl.sync; reads outside the members give 0.
LaneOutput Shuffled(const std::string& mode, const Case& lanes, u32 lane) {
  const LaneInput& mine = lanes[lane];
  const int l = static_cast<int>(lane), b = static_cast<int>(mine.b & 31);
  const int clamp = static_cast<int>(mine.c & 31), segment = static_cast<int>(mine.c >> 8 & 31);
  const int lowest = l & segment, highest = lowest | (clamp & ~segment);
  int from = lowest | (b & ~segment);
  if (mode == "up") from = l - b;
  if (mode == "down") from = l + b;
  if (mode == "bfly") from = l ^ b;
  const bool inside = mode == "up" ? from >= highest : from <= highest;
  const u32 source = static_cast<u32>(inside ? from : l) & 31;
  return {IsIn(mine.members, source) ? static_cast<u32>(lanes[source].a) : 0, inside};
}

TEST_P(Members, Shuffle) {
  std::vector<MemberForm> forms;
  for (const std::string mode : {"up", "down", "bfly", "idx"}) {
    forms.push_back({"$g shfl.sync." + mode + ".b32 %d|%q, %a, %b, %c, %m;",
                     [mode](const Case& lanes, u32 lane) { return Shuffled(mode, lanes, lane); }});
  }
  forms.push_back({"$g shfl.sync.idx.b32 %d, %a, %peer, 31, %m;",
                   [](const Case& lanes, u32 lane) -> LaneOutput {
                     return {static_cast<u32>(lanes[lanes[lane].peer].a), 0};
                   }});
  Check(forms);
}

TEST_P(Members, Vote) {
  const auto yes = [](const Case& lanes, u32 lane) {
    return Those(lanes, lane, [](const LaneInput& l) { return (l.a & 1) != 0; });
  };
  Check({{"$g vote.sync.all.pred %q, %p, %m;",
          [=](const Case& lanes, u32 lane) -> LaneOutput {
            return {kUntouched.d, yes(lanes, lane) == lanes[lane].members};
          }},
         {"$g vote.sync.any.pred %q, %p, %m;",
          [=](const Case& lanes, u32 lane) -> LaneOutput {
            return {kUntouched.d, yes(lanes, lane) != 0};
          }},
         {"$g vote.sync.uni.pred %q, %p, %m;",
          [=](const Case& lanes, u32 lane) -> LaneOutput {
            const u32 those = yes(lanes, lane);
            return {kUntouched.d, those == 0 || those == lanes[lane].members};
          }},
         {"$g vote.sync.ballot.b32 %d, %p, %m;",
          [=](const Case& lanes, u32 lane) -> LaneOutput {
            return {yes(lanes, lane), 0};
          }},
         {"$g vote.sync.ballot.b32 %d, !%p, %m;", [=](const Case& lanes, u32 lane) -> LaneOutput {
            return {lanes[lane].members & ~yes(lanes, lane), 0};
          }}});
}

TEST_P(Members, Match) {
  const auto same = [](bool wide, const Case& lanes, u32 lane) {
    const u64 mask = wide ? ~u64{0} : 0xffffffff, mine = lanes[lane].a & mask;
    return Those(lanes, lane, [=](const LaneInput& l) { return (l.a & mask) == mine; });
  };
  std::vector<MemberForm> forms;
  for (const bool wide : {false, true}) {
    const std::string source = wide ? "b64 " : "b32 ", value = wide ? "%wide" : "%a";
    forms.push_back({"$g match.any.sync." + source + "%d, " + value + ", %m;",
                     [=](const Case& lanes, u32 lane) -> LaneOutput {
                       return {same(wide, lanes, lane), 0};
                     }});
    forms.push_back({"$g match.all.sync." + source + "%d|%q, " + value + ", %m;",
                     [=](const Case& lanes, u32 lane) -> LaneOutput {
                       const bool all = same(wide, lanes, lane) == lanes[lane].members;
                       return {all ? lanes[lane].members : 0, all};
                     }});
  }
  Check(forms);
}

TEST_P(Members, Redux) {
  std::vector<MemberForm> forms;
  const auto add = [&]<typename T>(T, const std::string& spelling, auto f) {
    forms.push_back({"$g redux.sync." + spelling + " %d, %a, %m;",
                     [f](const Case& lanes, u32 lane) -> LaneOutput {
                       u32 left = lanes[lane].members;
                       T result = static_cast<T>(lanes[static_cast<u32>(std::countr_zero(left))].a);
                       for (left &= left - 1; left != 0; left &= left - 1) {
                         const auto value =
                             static_cast<T>(lanes[static_cast<u32>(std::countr_zero(left))].a);
                         result = static_cast<T>(f(result, value));
                       }
                       return {static_cast<u32>(result), 0};
                     }});
  };
  add(u32{}, "add.u32", [](u32 a, u32 b) { return a + b; });
  add(s32{}, "add.s32", [](s64 a, s64 b) { return a + b; });
  add(u32{}, "min.u32", [](u32 a, u32 b) { return std::min(a, b); });
  add(s32{}, "min.s32", [](s32 a, s32 b) { return std::min(a, b); });
  add(u32{}, "max.u32", [](u32 a, u32 b) { return std::max(a, b); });
  add(s32{}, "max.s32", [](s32 a, s32 b) { return std::max(a, b); });
  add(u32{}, "and.b32", [](u32 a, u32 b) { return a & b; });
  add(u32{}, "or.b32", [](u32 a, u32 b) { return a | b; });
  add(u32{}, "xor.b32", [](u32 a, u32 b) { return a ^ b; });
  // The result may overwrite the members.
  forms.push_back({"$g mov.b32 %d, %m;\n$g redux.sync.or.b32 %d, %d, %d;",
                   [](const Case& lanes, u32 lane) -> LaneOutput {
                     return {lanes[lane].members, 0};
                   }});
  Check(forms);
}

TEST_P(Members, BarrierAndElection) {
  Check({{"$g st.shared.u32 [%slot], %a;\n$g bar.warp.sync %m;\n$g ld.shared.u32 %d, [%from];\n"
          "$g bar.warp.sync %m;",
          [](const Case& lanes, u32 lane) -> LaneOutput {
            return {static_cast<u32>(lanes[lanes[lane].peer].a), 0};
          }},
         {"$g elect.sync %d|%q, %m;", [](const Case& lanes, u32 lane) -> LaneOutput {
            const u32 leader = static_cast<u32>(std::countr_zero(lanes[lane].members));
            return {leader, lane == leader};
          }}});
}

TEST_P(Members, HalvesOfAWarpInOneInstruction) {
  std::array<u32, 32> sums, ballots, equal, all;
  EXPECT_FALSE(RunOneWarp("redux.sync.add.u32 %d, %lane, %m;", &sums).fault);
  EXPECT_FALSE(
      RunOneWarp("setp.eq.u32 %p, %d, %d;\nvote.sync.ballot.b32 %d, %p, %m;", &ballots).fault);
  EXPECT_FALSE(RunOneWarp("match.any.sync.b32 %d, 7, %m;", &equal).fault);
  EXPECT_FALSE(RunOneWarp("vote.sync.all.pred %q, %low, %m;\nselp.u32 %d, 1, 0, %q;", &all).fault);
  for (u32 l = 0; l < 32; ++l) {
    EXPECT_EQ(sums[l], l < 16 ? 120u : 376u) << l;
    EXPECT_EQ(ballots[l], l < 16 ? 0x0000ffffu : 0xffff0000u) << l;
    EXPECT_EQ(equal[l], l < 16 ? 0x0000ffffu : 0xffff0000u) << l;
    EXPECT_EQ(all[l], l < 16 ? 1u : 0u) << l;
  }
}

// PTX waits for "non-exited threads"; lanes that never existed count as exited.
TEST_P(Members, ExitedMembersAreNotWaitedFor) {
  std::array<u32, 32> counts;
  EXPECT_FALSE(RunOneWarp("setp.eq.u32 %p, %lane, 3;\n@%p exit;\nsetp.eq.u32 %p, %d, %d;\n"
                          "vote.sync.ballot.b32 %d, %p, 0xffffffff;",
                          &counts, 20)
                   .fault);
  for (u32 l = 0; l < 20; ++l) EXPECT_EQ(counts[l], l == 3 ? 0u : 0xffff7u) << l;
  // Lanes exit while other lanes wait for them.
  EXPECT_FALSE(RunOneWarp("setp.ne.u32 %p, %lane, 3;\n@%p bra WAIT;\nexit;\nWAIT:\n"
                          "vote.sync.ballot.b32 %d, %p, 0xffffffff;",
                          &counts)
                   .fault);
  for (u32 l = 0; l < 32; ++l) EXPECT_EQ(counts[l], l == 3 ? 0u : ~8u) << l;
}

TEST_P(Members, LaneThatDoesNotNameItselfIsAFault) {
  const auto outcome = RunOneWarp("vote.sync.ballot.b32 %d, %low, 0x0000ffff;", nullptr);
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->kind, executor::Fault::Kind::kNotAMember);
  EXPECT_EQ(outcome.fault->thread.x, 16u);
  EXPECT_THAT(outcome.fault->message,
              HasSubstr("vote.sync.ballot.b32: lanes 0xffff0000 of the warp name the members "
                        "0x0000ffff, to which they do not belong"));
}

// Half of a warp waits for the other half, which waits at a barrier for all threads of the block,
// so neither can continue.
TEST_P(Members, MembersThatCannotArriveAreAFault) {
  for (const std::string waiting :
       {"shfl.sync.idx.b32 %d, %d, 0, 31, -1;", "vote.sync.any.pred %q, %p, -1;",
        "match.any.sync.b32 %d, %d, -1;", "redux.sync.or.b32 %d, %d, -1;", "bar.warp.sync -1;",
        "elect.sync %d|%p, -1;"}) {
    const auto outcome = RunOneWarp(
        "@%low bra WAIT;\nbar.sync 0;\nbra DONE;\nWAIT:\n" + waiting + "\nDONE:", nullptr);
    ASSERT_TRUE(outcome.fault) << waiting;
    EXPECT_EQ(outcome.fault->kind, executor::Fault::Kind::kMissingLanes);
    EXPECT_THAT(outcome.fault->message, HasSubstr("PTX line 19, " + waiting.substr(0, 4)));
    EXPECT_THAT(outcome.fault->message,
                HasSubstr("lanes 0x0000ffff of the warp wait for lanes 0xffff0000, which can never "
                          "arrive: lane 16 waits at PTX line 16"));
  }
}

// Each half of a warp waits for the whole warp in a different kind of instruction, so neither can
// continue.
TEST_P(Members, MembersThatWaitElsewhereAreAFault) {
  const auto outcome = RunOneWarp(
      "@%low bra WAIT;\nredux.sync.or.b32 %d, %d, -1;\nbra DONE;\nWAIT:\nbar.warp.sync -1;\nDONE:",
      nullptr);
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->kind, executor::Fault::Kind::kMissingLanes);
}

GPUSHARED_INSTANTIATE_FLAVOURS(Members);

}  // namespace
}  // namespace gpushared::testing
