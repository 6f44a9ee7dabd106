// SPDX-License-Identifier: Apache-2.0
// mbarrier: each operation against a model of counts and phases, and threads that synchronise with
// it.
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/executor/kernel_file.h"

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

class Mbarrier : public KernelFile {
 protected:
  Mbarrier() : KernelFile("mbarrier") {}

  // Returns a kernel of one thread that performs the steps, which output 32-bit words through `%s`.
  static std::string Steps(const std::string& steps) {
    return ".version 8.0\n.target sm_90\n.address_size 64\n"
           ".visible .entry steps(.param .u64 out) {\n"
           ".shared .align 8 .b64 place[2]; .reg .pred %p; .reg .b32 %s, %at; .reg .b64 %out, "
           "%any, "
           "%state<99>;\n"
           "ld.param.u64 %out, [out]; mov.u32 %at, place; cvta.shared.u64 %any, place;\n" +
           steps + "ret;\n}\n";
  }
};

// Models PTX's rules for an mbarrier.
struct Model {
  u32 expected = 0, pending = 0, phase = 0;
  void Arrive(u32 count, bool drops) {
    pending -= count;
    if (drops) expected -= count;
    if (pending == 0) pending = expected, ++phase;
  }
};

TEST_P(Mbarrier, CountsAndPhasesFollowPtx) {
  std::mt19937 random(20261123);
  const auto below = [&](u32 limit) { return static_cast<u32>(random() % limit); };
  // Ways to address the barrier: both forms of shared memory, and generic addresses.
  const std::pair<std::string, std::string> kPlaces[] = {
      {".shared", "[place+8]"}, {".shared::cta", "[%at+8]"}, {"", "[%any+8]"}};
  for (int round = 0; round < 40; ++round) {
    std::string steps;
    std::vector<u32> wanted;
    const auto show = [&](u32 value) {
      steps += "st.global.u32 [%out+" + std::to_string(wanted.size() * 4) + "], %s;\n";
      wanted.push_back(value);
    };
    Model model;
    model.expected = model.pending = 1 + below(6);
    steps += "mbarrier.init.shared.b64 [%at+8], " + std::to_string(model.pending) + ";\n";
    std::vector<u32> phases;  // Phases of the saved states.
    for (int step = 0; step < 60; ++step) {
      const auto& [space, place] = kPlaces[below(3)];
      const std::string state = "%state" + std::to_string(phases.size());
      const u32 what = below(5);
      if (what <= 1 && model.expected > 1 && phases.size() < 90) {
        const u32 count = 1 + below(std::min(model.pending, 3u));
        const bool drops = what == 1 && count < model.expected && below(3) == 0;
        const bool ends = count == model.pending;
        const std::string form = drops              ? "arrive_drop.release.cta"
                                 : ends || below(2) ? "arrive"
                                                    : "arrive.noComplete.release.cta";
        steps += "mbarrier." + form + space + ".b64 " + state + ", " + place + ", " +
                 std::to_string(count) + ";\n" + "mbarrier.pending_count.b64 %s, " + state + ";\n";
        show(model.pending);
        phases.push_back(model.phase);
        model.Arrive(count, drops);
      } else if (what == 2 && !phases.empty()) {
        steps += "mbarrier.arrive" + space + ".b64 _, " + place + ";\n";
        model.Arrive(1, false);
      } else if (what == 3 && !phases.empty() && phases.back() + 1 >= model.phase) {
        // A state is valid for its own phase and the next one.
        const std::string wait = below(2) ? "test_wait" : "try_wait.acquire.cta";
        steps += "mbarrier." + wait + space + ".b64 %p, " + place + ", %state" +
                 std::to_string(phases.size() - 1) + ";\nselp.u32 %s, 1, 0, %p;\n";
        show(phases.back() != model.phase ? 1 : 0);
      } else {
        const u32 parity = below(2);
        const bool tries = below(2) != 0;
        steps += std::string("mbarrier.") + (tries ? "try_wait" : "test_wait") + ".parity" + space +
                 ".b64 %p, " + place + ", " + std::to_string(parity) + (tries ? ", 100" : "") +
                 ";\nselp.u32 %s, 1, 0, %p;\n";
        // The wait fails only if the current phase, which is unfinished, has this parity.
        show(model.phase % 2 != parity ? 1 : 0);
      }
    }
    steps += "mbarrier.inval.shared.b64 [place+8];\n";
    launcher.Load(Steps(steps));
    u32* const out = launcher.Allocate<u32>(wanted.size() + 1);
    Run("steps", {1, 1, 1}, {1, 1, 1}, out);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_EQ(out[i], wanted[i]) << "round " << round << " value " << i << " of\n" << steps;
    }
  }
}

TEST_P(Mbarrier, ThreadsPassValuesOn) {
  constexpr int kThreads = 150, kRounds = 40;
  int* const data = launcher.Allocate<int>(kThreads);
  for (int i = 0; i < kThreads; ++i) data[i] = i * 1000;
  launcher.dynamic_shared_bytes = kThreads * 4;
  Run("pass_on", {1, 1, 1}, {kThreads, 1, 1}, data, kRounds);
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_EQ(data[i], (i + kRounds) % kThreads * 1000 + kRounds) << i;
  }
}

TEST_P(Mbarrier, DoesNotWaitForThreadsThatLeft) {
  constexpr int kThreads = 70;
  int* const seen = launcher.Allocate<int>(kThreads);
  Run("leave_one_by_one", {2, 1, 1}, {kThreads, 1, 1}, seen);
  for (int i = 0; i < kThreads; ++i) EXPECT_EQ(seen[i], 1) << i;
}

TEST_P(Mbarrier, LanesWaitForOthersOfTheirWarp) {
  int* const out = launcher.Allocate<int>(128);
  launcher.dynamic_shared_bytes = 128 * 4;
  Run("halves", {1, 1, 1}, {128, 1, 1}, out);
  for (int i = 0; i < 128; ++i) {
    const int wanted = i % 32 < 16 ? 499500 * (i + 16) : 0;
    EXPECT_EQ(out[i], wanted) << i;
  }
}

TEST_P(Mbarrier, EndlessWaitFaults) {
  launcher.Load(
      Steps("mbarrier.init.shared.b64 [%at], 1;\n"
            "AGAIN: mbarrier.try_wait.parity.shared.b64 %p, [%at], 0;\n@!%p bra AGAIN;\n"));
  launcher.stall_limit = 30ms;
  const executor::Fault fault = Faulting("steps", {2, 1, 1}, {64, 1, 1}, launcher.Allocate<u32>(1));
  EXPECT_EQ(fault.kind, executor::Fault::Kind::kStalled);
}

TEST_P(Mbarrier, BarrierOutsideSharedMemoryIsAFault) {
  for (const char* const place : {"[%out]", "[%any+128]", "[%any+4]", "[%state1]"}) {
    launcher.Load(Steps("mov.u64 %state1, 0;\nmbarrier.init.b64 " + std::string(place) + ", 1;\n"));
    const executor::Fault fault =
        Faulting("steps", {1, 1, 1}, {1, 1, 1}, launcher.Allocate<u64>(1));
    EXPECT_EQ(fault.line, 8u) << place;
    EXPECT_EQ(fault.instruction, "mbarrier.init.b64");
  }
}

GPUSHARED_INSTANTIATE_FLAVOURS(Mbarrier);

}  // namespace
}  // namespace gpushared::testing
