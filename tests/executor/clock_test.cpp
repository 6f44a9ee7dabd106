// SPDX-License-Identifier: Apache-2.0
// Clock registers never go backwards: each reading is between the previous and the next one.
#include <chrono>
#include <string>

#include "tests/executor/launcher.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

class Clocks : public PerFlavour {
 protected:
  // Reads `low` and `high` between two readings of `whole`.
  struct Readings {
    u64 first, last;
    u32 low, high;
  };
  Readings Read(const std::string& whole, const std::string& low, const std::string& high) {
    Launcher launcher(65536, GetParam());
    launcher.Load(
        ".version 9.0\n.target sm_90\n.address_size 64\n"
        ".visible .entry check(.param .u64 out)\n{\n  .reg .b64 %o, %d<2>; .reg .b32 %r<2>;\n"
        "  ld.param.u64 %o, [out];\n  mov.u64 %d0, " +
        whole + ";\n  mov.u32 %r0, " + low + ";\n  mov.u32 %r1, " + high + ";\n  mov.u64 %d1, " +
        whole +
        ";\n  st.global.v2.u64 [%o], {%d0, %d1};\n  st.global.v2.u32 [%o+16], {%r0, %r1};\n"
        "  ret;\n}\n");
    auto* out = launcher.Allocate<Readings>(1);
    const auto outcome = launcher.Run("check", {1, 1, 1}, {1, 1, 1}, out);
    EXPECT_FALSE(outcome.fault) << outcome.fault->message;
    return *out;
  }

  static void ExpectParts(const Readings& read) {
    EXPECT_LE(read.first, read.last);
    // The low word may have wrapped around in between.
    EXPECT_LE(read.low - static_cast<u32>(read.first), read.last - read.first);
    EXPECT_GE(read.high, read.first >> 32);
    EXPECT_LE(read.high, read.last >> 32);
  }
};

TEST_P(Clocks, ClockWordsAreHalvesOfTheClock) {
  ExpectParts(Read("%clock64", "%clock", "%clock_hi"));
}

TEST_P(Clocks, PerformanceMonitorsReadZero) {
  const Readings read = Read("%pm3_64", "%pm0", "%pm7");
  EXPECT_EQ(read.first + read.last + read.low + read.high, 0u);
}

TEST_P(Clocks, GlobalTimerEqualsTheHostsTime) {
  const auto now = [] {
    const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count();
  };
  const s64 before = now();
  const Readings read = Read("%globaltimer", "%globaltimer_lo", "%globaltimer_hi");
  const s64 after = now();
  ExpectParts(read);
  EXPECT_LE(before, static_cast<s64>(read.first));
  EXPECT_GE(after, static_cast<s64>(read.last));
}

GPUSHARED_INSTANTIATE_FLAVOURS(Clocks);

}  // namespace
}  // namespace gpushared::testing
