// SPDX-License-Identifier: Apache-2.0
// Layouts are reached or rolled back, whichever call fails; no other user's instance is lost.

#include "server/tools/mig/apply.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <set>

#include <gmock/gmock.h>

#include "server/tools/mig/planner.h"
#include "tests/mig/brute_force.h"
#include "tests/mig/mig_case.h"

namespace gpushared::mig {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json Rule(const char* call, unsigned at, int code, bool and_later = false) {
  return json::array({{{"call", call}, {"at", at}, {"code", code}, {"and_later", and_later}}});
}

class MigApply : public MigCase {
 protected:
  Change To(const Layout& layout, bool enabled = true) const {
    const MigGpu gpu = Gpu();
    return {.before = AsIs(gpu),
            .after = {.gpu = gpu.uuid, .is_enabled = enabled, .layout = layout}};
  }
};

constexpr const char* kA100 = R"({"gpus": [{"board": "A100-40", "mig": true, "instances": [
    {"profile": "1g.5gb", "start": 4}, {"profile": "2g.10gb", "start": 0}]}]})";
const Layout kBalanced = {{14, 0, {2}}, {19, 2, {1}}, {19, 3, {1}}, {9, 4, {3}}};

TEST_F(MigApply, MovesOnlyNecessaryInstances) {
  Machine(kA100);
  const std::string kept = Gpu().instances.at(0).compute.at(0).uuid;
  ASSERT_TRUE(Apply({To(kBalanced)}).ok());
  EXPECT_EQ(Gpu().layout(), kBalanced);
  EXPECT_EQ(Gpu().instances[0].compute[0].uuid, kept);
  EXPECT_EQ(tenant_.left.size(), 1U);
  EXPECT_EQ(tenant_.came_back, 1);
  ASSERT_TRUE(tenant_.now.has_value());
  EXPECT_EQ(tenant_.now->size(), 4U);
  EXPECT_EQ(tenant_.now->front(), kept);
  EXPECT_THAT(Saved().under_way, IsEmpty());
  EXPECT_THAT(Saved().at_boot, ElementsAre(AsIs(Gpu())));
}

TEST_F(MigApply, TurnsTheModeOnAndOff) {
  Machine(R"({"gpus": [{"board": "A100-40", "processes": [77]}]})");
  ASSERT_TRUE(Apply({To(kBalanced)}).ok());
  EXPECT_TRUE(Gpu().is_enabled);
  EXPECT_EQ(Gpu().layout(), kBalanced);
  const Status off = Apply({To({}, false)});
  ASSERT_TRUE(off.ok()) << off.message();
  EXPECT_FALSE(Gpu().is_enabled);
  EXPECT_THAT(Gpu().instances, IsEmpty());
}

TEST_F(MigApply, RollsBackBlockedModeChange) {
  Machine(R"({"gpus": [{"board": "A100-40", "processes": [4711]}]})");
  const Status held = Apply({To(kBalanced)});
  EXPECT_THAT(held.message(), AllOf(HasSubstr("held by"), HasSubstr("--at-boot")));
  EXPECT_FALSE(Gpu().is_pending);
  Machine(R"({"gpus": [{"board": "A100-40", "reset_required": true}]})");
  EXPECT_THAT(Apply({To(kBalanced)}).message(), HasSubstr("reset"));
  EXPECT_FALSE(Gpu().is_pending);
  EXPECT_THAT(Saved().under_way, IsEmpty());
}

// A process started between the plan and its execution.
TEST_F(MigApply, KeepsInstanceThatIsInUseByNow) {
  Machine(kA100);
  const Change change = To(kBalanced);
  json machine = json::parse(fake_nvml_get());
  machine["gpus"][0]["instances"][1]["compute"][0]["processes"] = {4711};
  Machine(machine.dump());
  const Status applied = Apply({change});
  EXPECT_EQ(applied.code(), StatusCode::kNotReady);
  EXPECT_THAT(applied.message(), AllOf(HasSubstr("1g.5gb at 4"), HasSubstr("process 4711")));
  EXPECT_EQ(Gpu().layout(), change.before.layout);
}

TEST_F(MigApply, DoesNotEvictTenantThatStays) {
  Machine(kA100);
  tenant_.rejection = {StatusCode::kTimedOut, "it has a session"};
  const Change change = To(kBalanced);
  const Status applied = Apply({change});
  EXPECT_THAT(applied.message(), HasSubstr("it has a session"));
  EXPECT_EQ(Gpu().layout(), change.before.layout);
  EXPECT_EQ(tenant_.came_back, 1);
}

TEST_F(MigApply, FailureOfSecondGpuRollsBackFirst) {
  Machine(
      R"({"gpus": [{"board": "A30", "mig": true, "instances": [{"profile": "4g.24gb", "start": 0}]},
      {"board": "A30", "mig": true}]})");
  std::vector<Change> changes;
  for (const std::size_t index : {0U, 1U}) {
    const MigGpu gpu = Gpu(index);
    changes.push_back({.before = AsIs(gpu),
                       .after = {.gpu = gpu.uuid, .is_enabled = true, .layout = {{5, 0, {2}}}}});
  }
  Failing(Rule("nvmlDeviceCreateGpuInstanceWithPlacement", 2, 23));
  const Status applied = Apply(changes);
  EXPECT_THAT(applied.message(), HasSubstr("GPU 1 (NVIDIA A30): 2g.12gb at 0"));
  EXPECT_EQ(AsIs(Gpu(0)), changes[0].before);
  EXPECT_EQ(AsIs(Gpu(1)), changes[1].before);
  EXPECT_THAT(Saved().at_boot, IsEmpty());
}

TEST_F(MigApply, RollsBackInterruptedChangeFirst) {
  Machine(kA100);
  const Change change = To(kBalanced);
  Failing(Rule("nvmlDeviceCreateGpuInstanceWithPlacement", 0, 999));
  EXPECT_FALSE(Apply({change}).ok());
  ASSERT_EQ(Saved().under_way.size(), 1U);
  EXPECT_EQ(Saved().under_way[0].before, change.before);
  Failing(json::array());
  EXPECT_THAT(Apply({To({})}).message(), HasSubstr("mig restore"));
  ASSERT_TRUE(Restore().ok());
  EXPECT_EQ(Gpu().layout(), change.before.layout);
  EXPECT_THAT(Saved().under_way, IsEmpty());
}

// After a reboot no instances exist, and on newer boards MIG mode is off, too.
TEST_F(MigApply, BootRestoresAppliedLayout) {
  Machine(kA100);
  ASSERT_TRUE(Apply({To(kBalanced)}).ok());
  for (const char* mig : {"true", "false"}) {
    Machine(R"({"gpus": [{"board": "A100-40", "mig": )" + std::string(mig) + "}]}");
    const Status restored = Restore();
    ASSERT_TRUE(restored.ok()) << restored.message();
    EXPECT_EQ(Gpu().layout(), kBalanced);
  }
}

TEST_F(MigApply, LayoutOfTheNextBootChangesNothingNow) {
  Machine(kA100);
  const Layout before = Gpu().layout();
  {
    const auto state = StateFile::Open(path_);
    Mover mover(control(), *state, tenant_, [](const std::string&) {});
    ASSERT_TRUE(mover.SaveForBoot({To(kBalanced)}).ok());
  }
  EXPECT_EQ(Gpu().layout(), before);
  ASSERT_TRUE(Restore().ok());
  EXPECT_EQ(Gpu().layout(), kBalanced);
}

TEST_F(MigApply, MissingGpuDoesNotPreventLayoutsOfOthers) {
  Machine(kA100);
  ASSERT_TRUE(Apply({To(kBalanced)}).ok());
  SavedState saved = Saved();
  saved.at_boot.insert(saved.at_boot.begin(), {.gpu = "GPU-gone", .is_enabled = true});
  ASSERT_TRUE(StateFile::Open(path_)->Save(saved).ok());
  Machine(R"({"gpus": [{"board": "A100-40", "mig": true}]})");
  EXPECT_THAT(Restore().message(), HasSubstr("GPU-gone"));
  EXPECT_EQ(Gpu().layout(), kBalanced);
}

// ---- random plans, with failures at random calls

struct Outcomes {
  int plans = 0, made = 0, taken_back = 0, restored = 0;
};

class RandomPlans : public MigCase {
 protected:
  RandomPlans() { path_ = shared_ / "state.json"; }

  std::size_t Below(std::size_t bound) {
    return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random_);
  }
  const std::vector<Layout>& GetLayouts(const Board& board) {
    std::vector<Layout>& layouts = layouts_[board.slices];
    if (layouts.empty()) layouts = AllLayouts(board);
    return layouts;
  }

  // A GPU of any board in any layout, with some instances used by others or by the tenant.
  json RandomGpu() {
    static constexpr const char* kNames[] = {"A30",     "A100-40", "A100-80", "H100",
                                             "H100-96", "H200",    "B200"};
    const char* const name = kNames[Below(std::size(kNames))];
    Machine(json{{"gpus", {{{"board", name}}}}}.dump());
    const Board board = Gpu().board;
    json gpu = {{"board", name}, {"mig", Below(5) != 0}, {"instances", json::array()}};
    if (!gpu["mig"]) return gpu;
    const std::vector<Layout>& layouts = GetLayouts(board);
    for (const Instance& instance : layouts[Below(layouts.size())]) {
      static const json kUsers[] = {json::array(), json::array(), {77}, {4711}};
      gpu["instances"].push_back({{"profile", board.Find(instance.profile)->name},
                                  {"start", instance.start},
                                  {"processes", kUsers[Below(std::size(kUsers))]}});
    }
    return gpu;
  }

  // Returns a random change of the GPU, or nothing if its instances in use do not permit the
  // change.
  std::optional<Change> RandomChange(const MigGpu& gpu) {
    const std::vector<Layout>& layouts = GetLayouts(gpu.board);
    const Counts counts = GetCounts(layouts[Below(layouts.size())]);
    std::vector<Present> have;
    for (const LiveInstance& live : gpu.instances) {
      have.push_back({.instance = live.instance,
                      .user = GetUsers(live.compute.at(0).processes, {kWorkerPid})});
    }
    const Result<Plan> plan = MakePlan(gpu.board, have, GetWanted(gpu.board, counts));
    if (!plan.ok()) return std::nullopt;
    return Change{.before = AsIs(gpu),
                  .after = {.gpu = gpu.uuid, .is_enabled = true, .layout = plan->After()}};
  }

  // UUIDs of the devices that others use.
  std::set<std::string> Used() const {
    std::set<std::string> used;
    const auto gpus = control().Read();
    for (const MigGpu& gpu : *gpus) {
      for (const LiveInstance& live : gpu.instances) {
        for (const LiveCompute& compute : live.compute) {
          if (!GetUsers(compute.processes, {kWorkerPid}).empty()) used.insert(compute.uuid);
        }
      }
    }
    return used;
  }

  void ExpectAll(const std::vector<Change>& changes, GpuLayout Change::*which) {
    for (const Change& change : changes) {
      const auto gpu = control().Find(change.before.gpu);
      ASSERT_TRUE(gpu.ok()) << gpu.status().message();
      EXPECT_EQ(AsIs(*gpu), change.*which);
      EXPECT_EQ(gpu->is_pending, gpu->is_enabled);
    }
  }

  // Applies the changes to the machine with the failures of `rules`, and checks the resulting
  // state.
  void ApplyWith(const std::string& machine, const std::vector<Change>& changes, const json& rules,
                 Outcomes& outcomes) {
    Machine(machine);
    const std::set<std::string> used = Used();
    Failing(rules);
    const Status applied = Apply(changes);
    Failing(json::array());
    EXPECT_EQ(Used(), used) << "an instance in use was lost";
    if (applied.ok()) {
      ++outcomes.made;
      ExpectAll(changes, &Change::after);
      return;
    }
    if (Saved().under_way.empty()) {
      ++outcomes.taken_back;
    } else {
      ++outcomes.restored;
      const Status restored = Restore();
      ASSERT_TRUE(restored.ok()) << restored.message();
      EXPECT_EQ(Used(), used) << "an instance in use was lost on the way back";
      EXPECT_TRUE(Saved().under_way.empty());
    }
    ExpectAll(changes, &Change::before);
  }

  void RunOnePlan(Outcomes& outcomes) {
    json gpus = {RandomGpu()};
    if (Below(4) == 0) gpus.push_back(RandomGpu());
    const std::string machine = json{{"gpus", gpus}}.dump();
    Machine(machine);
    std::vector<Change> changes;
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      if (auto change = RandomChange(Gpu(i)); change) changes.push_back(std::move(*change));
    }
    if (changes.size() != gpus.size()) return;
    ++outcomes.plans;
    std::filesystem::remove(path_);
    ApplyWith(machine, changes, json::array(), outcomes);
    Machine(machine);
    const Status applied = Apply(changes);
    EXPECT_TRUE(applied.ok()) << applied.message();
    const std::size_t calls = fake_nvml_calls();
    static constexpr int kCodes[] = {1, 2, 3, 4, 6, 7, 15, 19, 23, 999};
    const json rule = Rule("*", 1 + static_cast<unsigned>(Below(calls)),
                           kCodes[Below(std::size(kCodes))], Below(2) == 0);
    SCOPED_TRACE(machine + " " + rule.dump());
    std::filesystem::remove(path_);
    ApplyWith(machine, changes, rule, outcomes);
  }

  std::mt19937 random_{20261124};
  std::map<std::uint32_t, std::vector<Layout>> layouts_;
  const testing::ScratchDirectory shared_;
};

// Returns the number of plans that the stage `long` requests; null in other stages.
const char* PlansAsked() { return std::getenv("GPUSHARED_MIG_PLANS"); }

TEST_F(RandomPlans, EndInOldOrNewLayout) {
  const int plans = PlansAsked() != nullptr ? std::atoi(PlansAsked()) : 100;
  Outcomes outcomes;
  while (outcomes.plans < plans && !HasFailure()) RunOnePlan(outcomes);
  std::printf("%d plans: %d made, %d taken back at once, %d by restore\n", outcomes.plans,
              outcomes.made, outcomes.taken_back, outcomes.restored);
  EXPECT_GT(outcomes.taken_back, plans / 10);
  EXPECT_GT(outcomes.restored, plans / 10);
}

// One plan that destroys and creates instances, and keeps those in use. In the stage `long`, every
// call fails in every way. In other stages, every fourth call fails in one of the ways, in
// rotation.
TEST_F(RandomPlans, AnyCallOfOnePlanMayFail) {
  const std::string machine = R"({"gpus": [
      {"board": "A100-40", "mig": true, "instances": [
        {"profile": "2g.10gb", "start": 0, "processes": [4711]},
        {"profile": "1g.5gb", "start": 4, "processes": [77]}, {"profile": "1g.5gb", "start": 6}]},
      {"board": "A30", "processes": [77]}]})";
  Machine(machine);
  const MigGpu first = Gpu(0), second = Gpu(1);
  const std::vector<Change> changes = {
      {.before = AsIs(first),
       .after = {first.uuid, true, {{14, 0, {2}}, {19, 2, {1}}, {9, 4, {2, 1}}}}},
      {.before = AsIs(second), .after = {second.uuid, true, {{5, 0, {2}}, {5, 2, {1, 1}}}}}};
  ASSERT_TRUE(Apply(changes).ok());
  const unsigned calls = fake_nvml_calls();
  EXPECT_GT(calls, 300U);
  Outcomes outcomes;
  for (unsigned call = 1; call <= calls && !HasFailure(); call += PlansAsked() == nullptr ? 4 : 1) {
    unsigned way = 0;
    for (const auto& [code, and_later] : {std::pair(3, false), {999, false}, {999, true}}) {
      if (PlansAsked() == nullptr && way++ != call % 3) continue;
      SCOPED_TRACE("call " + std::to_string(call) + (and_later ? " and later" : ""));
      std::filesystem::remove(path_);
      ApplyWith(machine, changes, Rule("*", call, code, and_later), outcomes);
    }
  }
  std::printf("%u calls: %d made, %d taken back at once, %d by restore\n", calls, outcomes.made,
              outcomes.taken_back, outcomes.restored);
}

}  // namespace
}  // namespace gpushared::mig
