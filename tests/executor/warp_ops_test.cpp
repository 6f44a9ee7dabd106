// SPDX-License-Identifier: Apache-2.0
// shfl, vote, match, redux, activemask, elect: one warp with any set of active lanes.
#include <array>
#include <bit>
#include <random>

#include "tests/executor/launcher.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

using Row = std::array<Word, 32>;
constexpr Word kUntouched = 0xdeadbeefdeadbeef;

struct WarpResult {
  Row values;      // $d
  Row predicates;  // $q, 0 or 1; 2 if it was not written.
};

class WarpOps : public PerFlavour {
 protected:
  // Runs `code` on the lanes of `active`; the others skip it. $a and $b are 32-bit sources, $w is
  // 64 bits wide, $p the predicate of bit 0 of $a, $m the active lanes.
  WarpResult RunWarp(const std::string& code, u32 active, const Row& a, const Row& b = {},
                     bool wide_result = false) {
    std::string text =
        ".version 9.0\n.target sm_90\n.address_size 64\n"
        ".visible .entry check(.param .u64 io, .param .u32 active)\n{\n"
        "  .reg .pred %here, $p, $q;\n  .reg .b32 %lane, $m, $a, $b, %bit;\n"
        "  .reg .b64 %io, $w;\n  .reg .b" +
        std::string(wide_result ? "64" : "32") +
        " $d;\n"
        "  mov.u32 %lane, %tid.x;\n  ld.param.u64 %io, [io];\n  ld.param.u32 $m, [active];\n"
        "  mad.wide.u32 %io, %lane, 32, %io;\n"
        "  ld.global.u32 $a, [%io];\n  ld.global.u64 $w, [%io];\n  ld.global.u32 $b, [%io+8];\n"
        "  ld.global.b" +
        std::string(wide_result ? "64" : "32") +
        " $d, [%io+16];\n"
        "  and.b32 %bit, $a, 1;\n  setp.ne.u32 $p, %bit, 0;\n  setp.ne.u32 $q, %lane, %lane;\n"
        "  shr.u32 %bit, $m, %lane;\n  and.b32 %bit, %bit, 1;\n  setp.eq.u32 %here, %bit, 0;\n"
        "  @%here bra DONE;\n  " +
        code +
        "\n"
        "  st.global.b" +
        std::string(wide_result ? "64" : "32") +
        " [%io+16], $d;\n"
        "  selp.u32 %bit, 1, 0, $q;\n  st.global.u32 [%io+24], %bit;\nDONE:\n  ret;\n}\n";
    for (std::size_t at = 0; (at = text.find('$', at)) != std::string::npos;) text[at] = '%';
    Launcher launcher(65536, GetParam());
    launcher.Load(text);
    auto* io = launcher.Allocate<std::array<Word, 4>>(32);
    for (u32 l = 0; l < 32; ++l) io[l] = {a[l], b[l], kUntouched, 2};
    const auto outcome = launcher.Run("check", {1, 1, 1}, {32, 1, 1}, io, active);
    EXPECT_FALSE(outcome.fault) << outcome.fault->message;
    WarpResult result;
    for (u32 l = 0; l < 32; ++l) {
      result.values[l] = wide_result ? io[l][2] : io[l][2] & 0xffffffff;
      result.predicates[l] = io[l][3];
      if ((active >> l & 1) == 0) {
        EXPECT_EQ(io[l][2], kUntouched) << "idle lane " << l;
      }
    }
    return result;
  }
  static constexpr u32 kActive[] = {0xffffffff, 0x0000ffff, 0x80000000,
                                    0x00000001, 0xa5a5f00f, 0x7ffffffe};
  static Row RandomRow(u32 seed, u32 values) {
    std::mt19937 random(seed);
    Row row;
    for (Word& word : row) word = random() % values;
    return row;
  }
};

// The pseudo-code of PTX ISA, shfl.sync. Lanes that name an idle lane read an undefined value and
// are not compared.
TEST_P(WarpOps, ShufflesReadOtherLanes) {
  Row a;
  for (u32 l = 0; l < 32; ++l) a[l] = 1000 + l * 3;
  for (const std::string mode : {"up", "down", "bfly", "idx"}) {
    for (const u32 c : {0x1fu, 0u, 0x1c1fu, 0x181fu, 0x1003u, 0x0007u, 0x1e00u, 0xffffffffu}) {
      for (const u32 active : kActive) {
        const Row b = RandomRow(c + active, 40);
        const WarpResult result =
            RunWarp("shfl.sync." + mode + ".b32 $d|$q, $a, $b, " + std::to_string(c) + ", $m;",
                    active, a, b);
        for (int lane = 0; lane < 32; ++lane) {
          if ((active >> lane & 1) == 0) continue;
          const int bval = static_cast<int>(b[static_cast<u32>(lane)] & 31);
          const int cval = static_cast<int>(c & 31), segment = static_cast<int>(c >> 8 & 31);
          const int max_lane = (lane & segment) | (cval & ~segment), min_lane = lane & segment;
          int j = mode == "up"     ? lane - bval
                  : mode == "down" ? lane + bval
                  : mode == "bfly" ? lane ^ bval
                                   : (min_lane | (bval & ~segment));
          const bool inside = mode == "up" ? j >= max_lane : j <= max_lane;
          if (!inside) j = lane;
          const u32 l = static_cast<u32>(lane), from = static_cast<u32>(j);
          ASSERT_EQ(result.predicates[l], inside) << mode << " c " << c << " lane " << lane;
          if ((active >> from & 1) == 0) continue;
          ASSERT_EQ(result.values[l], a[from]) << mode << " c " << c << " lane " << lane;
        }
      }
    }
  }
}

TEST_P(WarpOps, ShufflesWithoutAPredicateOrAMask) {
  Row a;
  for (u32 l = 0; l < 32; ++l) a[l] = l;
  const WarpResult plain = RunWarp("shfl.sync.bfly.b32 $d, $a, 1, 31, -1;", 0xffffffff, a);
  const WarpResult old = RunWarp("shfl.down.b32 $d, $a, 2, 31;", 0xffffffff, a);
  const WarpResult own = RunWarp("shfl.sync.idx.b32 $a, $a, 5, 31, $m;\n mov.b32 $d, $a;", 0xff, a);
  for (u32 l = 0; l < 32; ++l) {
    EXPECT_EQ(plain.values[l], l ^ 1);
    EXPECT_EQ(old.values[l], l < 30 ? l + 2 : l);
    if (l < 8) {
      EXPECT_EQ(own.values[l], 5u);
    }
  }
}

TEST_P(WarpOps, VotesOfTheActiveLanes) {
  for (const u32 active : kActive) {
    for (const u32 pattern : {0u, 0xffffffffu, 0x0000ffffu, 0xa5a5a5a5u}) {
      for (const bool negated : {false, true}) {
        Row a;
        for (u32 l = 0; l < 32; ++l) a[l] = pattern >> l & 1;
        const u32 yes = (negated ? ~pattern : pattern) & active;
        const std::string p = negated ? "!$p" : "$p";
        const auto vote = [&](const std::string& mode) {
          return RunWarp("vote.sync." + mode + ".pred $q, " + p + ", $m;", active, a);
        };
        const WarpResult all = vote("all"), any = vote("any"), uniform = vote("uni");
        const WarpResult ballot = RunWarp("vote.sync.ballot.b32 $d, " + p + ", $m;", active, a);
        const WarpResult old = RunWarp("vote.ballot.b32 $d, " + p + ";", active, a);
        const WarpResult mask = RunWarp("activemask.b32 $d;", active, a);
        for (u32 l = 0; l < 32; ++l) {
          if ((active >> l & 1) == 0) continue;
          ASSERT_EQ(all.predicates[l], yes == active);
          ASSERT_EQ(any.predicates[l], yes != 0);
          ASSERT_EQ(uniform.predicates[l], yes == 0 || yes == active);
          ASSERT_EQ(ballot.values[l], yes);
          ASSERT_EQ(old.values[l], yes);
          ASSERT_EQ(mask.values[l], active);
        }
      }
    }
  }
}

TEST_P(WarpOps, MatchesOfEqualValues) {
  for (const u32 active : kActive) {
    for (const u32 values : {1u, 3u, 40u}) {
      for (const bool wide : {false, true}) {
        Row a = RandomRow(active + values, values);
        // Lets some values differ only in their high words, which 32-bit comparisons would not
        // notice.
        for (u32 l = 0; l < 32; l += 2) a[l] |= Word{values > 1} << 32;
        const auto value = [&](u32 l) { return wide ? a[l] : a[l] & 0xffffffff; };
        const std::string type = wide ? "b64" : "b32", source = wide ? "$w" : "$a";
        const WarpResult any =
            RunWarp("match.any.sync." + type + " $d, " + source + ", $m;", active, a);
        const WarpResult all =
            RunWarp("match.all.sync." + type + " $d|$q, " + source + ", $m;", active, a);
        for (u32 l = 0; l < 32; ++l) {
          if ((active >> l & 1) == 0) continue;
          u32 same = 0;
          for (u32 k = 0; k < 32; ++k) same |= u32{value(k) == value(l)} << k;
          same &= active;
          ASSERT_EQ(any.values[l], same) << l;
          ASSERT_EQ(all.predicates[l], same == active) << l;
          ASSERT_EQ(all.values[l], same == active ? active : 0) << l;
        }
      }
    }
  }
}

TEST_P(WarpOps, ReductionsOverTheActiveLanes) {
  const auto check = [&]<typename T>(T, const std::string& spelling, auto f) {
    for (const u32 active : kActive) {
      for (u32 seed = 0; seed < 4; ++seed) {
        const Row a = RandomRow(seed, seed % 2 == 0 ? 0xffffffff : 17);
        const WarpResult result = RunWarp("redux.sync." + spelling + " $d, $a, $m;", active, a);
        const u32 first = static_cast<u32>(std::countr_zero(active));
        T expected = static_cast<T>(a[first]);
        for (u32 l = first + 1; l < 32; ++l) {
          if ((active >> l & 1) != 0) expected = static_cast<T>(f(expected, static_cast<T>(a[l])));
        }
        for (u32 l = 0; l < 32; ++l) {
          if ((active >> l & 1) == 0) continue;
          ASSERT_EQ(result.values[l], static_cast<u32>(expected)) << spelling;
        }
      }
    }
  };
  check(u32{}, "add.u32", [](s64 a, s64 b) { return a + b; });
  check(s32{}, "add.s32", [](s64 a, s64 b) { return a + b; });
  check(u32{}, "min.u32", [](u32 a, u32 b) { return std::min(a, b); });
  check(s32{}, "min.s32", [](s32 a, s32 b) { return std::min(a, b); });
  check(u32{}, "max.u32", [](u32 a, u32 b) { return std::max(a, b); });
  check(s32{}, "max.s32", [](s32 a, s32 b) { return std::max(a, b); });
  check(u32{}, "and.b32", [](u32 a, u32 b) { return a & b; });
  check(u32{}, "or.b32", [](u32 a, u32 b) { return a | b; });
  check(u32{}, "xor.b32", [](u32 a, u32 b) { return a ^ b; });
}

TEST_P(WarpOps, OneLaneIsElected) {
  for (const u32 active : kActive) {
    const WarpResult result = RunWarp("elect.sync $d|$q, $m;", active, {});
    const u32 leader = static_cast<u32>(std::countr_zero(active));
    for (u32 l = 0; l < 32; ++l) {
      if ((active >> l & 1) == 0) continue;
      EXPECT_EQ(result.values[l], leader);
      EXPECT_EQ(result.predicates[l], l == leader);
    }
  }
}

// A guard excludes lanes from the instruction, as a branch does.
TEST_P(WarpOps, GuardedLanesDoNotParticipate) {
  Row a;
  for (u32 l = 0; l < 32; ++l) a[l] = l;  // $p: odd lanes.
  const WarpResult ballot =
      RunWarp("mov.b32 $d, 7;\n @$p vote.sync.ballot.b32 $d, $p, 0xaaaaaaaa;", 0xffffffff, a);
  const WarpResult shuffle = RunWarp(
      "mov.b32 $d, 7;\n @!$p shfl.sync.down.b32 $d|$p, $a, 2, 31, 0x55555555;", 0xffffffff, a);
  for (u32 l = 0; l < 32; ++l) {
    EXPECT_EQ(ballot.values[l], l % 2 == 1 ? 0xaaaaaaaau : 7u);
    EXPECT_EQ(shuffle.values[l], l % 2 == 1 ? 7u : l < 30 ? l + 2 : l);
  }
}

GPUSHARED_INSTANTIATE_FLAVOURS(WarpOps);

}  // namespace
}  // namespace gpushared::testing
