// SPDX-License-Identifier: Apache-2.0
// Gate mode in the simulator: turns, windows and launches, compared with arithmetic by hand.
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "scheduler/policy_catalog.h"
#include "scheduler/sim/gated_front.h"
#include "scheduler/sim/run.h"
#include "tests/simulation/gpu/recording_gpu.h"

namespace gpushared::simulation {
namespace {

using namespace std::chrono_literals;
using scheduler::ClientSpec;
using scheduler::Duration;
using scheduler::SchedulingClass;
using scheduler::TimePoint;

constexpr ClientSpec kHigh{.scheduling_class = SchedulingClass::kHigh};
constexpr ClientSpec kLow{.scheduling_class = SchedulingClass::kLow};
constexpr Duration kRelay = 10us;

double ToUs(Duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

// Time advances only in RunFor. A launch call takes no time unless Start is given its time.
class Gated : public ::testing::Test {
 protected:
  void Start(std::string_view policy, const std::vector<ClientSpec>& clients,
             Duration launch_call = {}) {
    FrontOptions options;
    options.costs.launch_call = launch_call;
    options.costs.gate_relay = kRelay;
    front_ = std::make_unique<GatedFront>(gpu_, scheduler::FindPolicy(policy)->make({}), options);
    for (const ClientSpec& spec : clients) front_->AddClient(spec, now_);
  }
  void Launch(std::size_t client, Duration kernel, int count = 1) {
    for (int i = 0; i < count; ++i)
      front_->Enqueue({.id = ++launches_, .client = client, .kernel = {80, kernel}}, now_);
    front_->Act(now_);
  }
  void RunFor(Duration time) {
    const TimePoint end = now_ + time;
    while (front_->wake_at() && *front_->wake_at() <= end) {
      now_ = *front_->wake_at();
      front_->Act(now_);
    }
    now_ = end;
  }
  // Ends the client's oldest launch on the GPU.
  void FinishOne(std::size_t client) {
    for (; ended_ids_[gpu_.submitted.at(ended_[client]).id] ||
           gpu_.submitted.at(ended_[client]).stream != client;
         ++ended_[client]) {
    }
    const std::uint64_t id = gpu_.submitted[ended_[client]].id;
    ended_ids_[id] = true;
    EXPECT_TRUE(front_->OnFinished({id, 80}, now_));
    front_->Act(now_);
  }
  std::size_t submitted(std::size_t client) const {
    return static_cast<std::size_t>(std::ranges::count(gpu_.submitted, client, &Work::stream));
  }

  RecordingGpu gpu_;
  std::unique_ptr<GatedFront> front_;
  TimePoint now_{1s};
  std::uint64_t launches_ = 0;
  std::map<std::size_t, std::size_t> ended_;
  std::map<std::uint64_t, bool> ended_ids_;
};

TEST_F(Gated, LowClientLaunchesWhenItSeesItsOpenGate) {
  Start("priority", {kHigh, kLow});
  Launch(1, 100us);
  RunFor(kRelay - 1ns);
  EXPECT_EQ(submitted(1), 0U);
  RunFor(1ns);
  EXPECT_EQ(submitted(1), 1U);
}

TEST_F(Gated, HighClientNeverWaits) {
  for (const std::string_view policy : {"priority", "deadline"}) {
    gpu_ = {};
    Start(policy, {kHigh, kLow});
    Launch(1, 100us, 10);
    RunFor(1ms);
    const std::size_t low = submitted(1);
    Launch(0, 100us, 200);
    EXPECT_EQ(submitted(0), 200U) << policy << ": no window either";
    EXPECT_EQ(submitted(1), low);
  }
}

TEST_F(Gated, EveryClientWaitsWithoutClasses) {
  Start("fair", {kHigh, kLow});
  Launch(0, 100us);
  EXPECT_EQ(submitted(0), 0U);
  RunFor(kRelay);
  EXPECT_EQ(submitted(0), 1U);
}

TEST_F(Gated, LowClientKeepsWindowPlusOneLaunchInFlight) {
  struct Case {
    std::vector<ClientSpec> clients;
    std::size_t in_flight;
  };
  // Kernels of 30 us: the last one is launched at 240 of 250 us, or at 480 of 500 us.
  for (const Case& each : {Case{{kHigh, kLow}, 9}, Case{{kLow, kLow}, 17}}) {
    gpu_ = {};
    ended_.clear();
    ended_ids_.clear();
    Start("priority", each.clients);
    Launch(1, 30us, 100);
    RunFor(100us);
    EXPECT_EQ(submitted(1), each.in_flight);
    FinishOne(1);
    EXPECT_EQ(submitted(1), each.in_flight + 1);
  }
}

TEST_F(Gated, LongKernelIsFollowedByOneMoreAtMost) {
  Start("priority", {kHigh, kLow});
  Launch(1, 1ms, 5);
  RunFor(100us);
  EXPECT_EQ(submitted(1), 1U);
  FinishOne(1);
  EXPECT_EQ(submitted(1), 2U);
}

TEST_F(Gated, LoneClientHasNoWindow) {
  Start("priority", {kLow});
  Launch(0, 1ms, 100);
  RunFor(kRelay);
  EXPECT_EQ(submitted(0), 100U);
}

// A launch call of 4 us leaves time for two calls before the client sees that its gate was closed.
TEST_F(Gated, StopHoldsBackLaunchesOnceItIsSeen) {
  Start("priority", {kHigh, kLow}, 4us);
  Launch(1, 5us, 100);
  RunFor(kRelay + 4us);
  EXPECT_EQ(submitted(1), 2U);
  RunFor(2us);
  Launch(0, 100us);
  RunFor(kRelay);
  // The launch calls began 0, 4, 8 and 12 us after the client had read that its gate is open. After
  // 16 us it read that the gate is closed.
  EXPECT_EQ(submitted(1), 4U);
  for (int i = 0; i < 4; ++i) FinishOne(1);
  RunFor(5ms);
  EXPECT_EQ(submitted(1), 4U) << "the high client is busy";
}

TEST_F(Gated, StoppedTurnResumesAfterHighWork) {
  Start("priority", {kHigh, kLow});
  Launch(1, 200us, 4);
  RunFor(kRelay);
  EXPECT_EQ(submitted(1), 2U);
  Launch(0, 100us);
  RunFor(100us);
  FinishOne(1);
  EXPECT_EQ(front_->charged(1), 0us) << "a launch is in flight";
  FinishOne(1);
  // The low turn was alone for the relay's time, and then shared the device with the high turn.
  EXPECT_NEAR(ToUs(*front_->charged(1)), 10 + 100 / 2, 0.01);
  FinishOne(0);
  EXPECT_EQ(front_->decisions(), 2U);
  // The high turn is idle for 50 us, and the policy holds off for 20 us.
  RunFor(70us + kRelay - 1ns);
  EXPECT_EQ(submitted(1), 2U);
  RunFor(1ns);
  EXPECT_EQ(front_->decisions(), 3U);
  EXPECT_EQ(submitted(1), 4U);
}

TEST_F(Gated, IdleTurnEndsAndIsChargedToItsClient) {
  Start("priority", {kHigh, kLow});
  Launch(1, 100us);
  RunFor(kRelay);
  RunFor(100us);
  FinishOne(1);
  RunFor(GatedFront::kIdle - 1ns);
  EXPECT_EQ(front_->charged(1), 0us);
  RunFor(1ns);
  EXPECT_EQ(front_->charged(1), kRelay + 100us + GatedFront::kIdle);
  EXPECT_EQ(front_->charged(0), 0us);
}

TEST_F(Gated, OpenTurnLaunchesAgainWithoutAnotherDecision) {
  Start("priority", {kHigh, kLow});
  Launch(1, 100us);
  RunFor(kRelay);
  FinishOne(1);
  RunFor(40us);
  Launch(1, 100us);
  EXPECT_EQ(submitted(1), 2U);
  EXPECT_EQ(front_->decisions(), 1U);
}

TEST_F(Gated, StoppedTurnEndsAtDrainLimit) {
  Start("round_robin", {kLow, kLow});
  Launch(0, 100ms);
  RunFor(kRelay);
  Launch(1, 1ms);
  RunFor(2ms + GatedFront::kDrainMax - 1us);
  EXPECT_EQ(submitted(1), 0U);
  RunFor(1us + kRelay);
  EXPECT_EQ(submitted(1), 1U);
  EXPECT_GE(front_->charged(0), GatedFront::kDrainMax);
  EXPECT_EQ(front_->charged(1), 0us);
}

TEST_F(Gated, GraphIsOneLaunch) {
  Start("priority", {kHigh, kLow});
  for (std::uint32_t node = 0; node < 50; ++node) {
    Kernel kernel{80, 10us};
    kernel.graph_nodes = node == 0 ? 50 : 0;
    kernel.follows_in_graph = node > 0;
    front_->Enqueue({.id = ++launches_, .client = 1, .kernel = kernel}, now_);
  }
  Launch(1, 10us);
  RunFor(kRelay);
  EXPECT_EQ(submitted(1), 50U);
}

TEST_F(Gated, CopyDoesNotWaitForGateButForEarlierLaunch) {
  Start("priority", {kHigh, kLow});
  Launch(0, 100us);
  const Kernel copy{.blocks = 1, .block_time = 40us, .kind = Kernel::Kind::kCopyToDevice};
  front_->Enqueue({.id = ++launches_, .client = 1, .kernel = copy}, now_);
  front_->Act(now_);
  EXPECT_EQ(submitted(1), 1U);
  Launch(1, 100us);
  front_->Enqueue({.id = ++launches_, .client = 1, .kernel = copy}, now_);
  RunFor(1ms);
  EXPECT_EQ(submitted(1), 1U);
  EXPECT_EQ(front_->decisions(), 1U) << "the high client's turn";
}

// ---- whole runs

// A GPU of one multiprocessor, on which only the costs below take time.
FrontOptions Exact() {
  FrontOptions options{.multiprocessors = 1};
  options.costs = {.launch_call = 2us,
                   .launch_delay = {},
                   .kernel_gap = {},
                   .notice = {},
                   .context_switch = 10us,
                   .gate_relay = kRelay};
  return options;
}

ClientPlan Requests(const ClientSpec& spec, const std::vector<Kernel>& kernels,
                    std::vector<double> times_s) {
  return {.name = "client",
          .spec = spec,
          .job = {"job", kernels},
          .pace = ClientPlan::Pace::kOpen,
          .times_s = std::move(times_s),
          .awake = {}};
}

// All times are in us. The low client reads at 10 that its gate is open, and launches two kernels
// until 14, which run from 12 to 212 and from 212 to 412. It launches the third kernel at 212, when
// one kernel is in flight. The request arrives at 300, and the gate is closed before the fourth
// kernel.
Scenario TimelineScenario() {
  return {.clients = {Requests(kHigh, std::vector<Kernel>(2, {1, 50us}), {300e-6}),
                      Requests(kLow, std::vector<Kernel>(4, {1, 200us}), {0.0})}};
}

// Side by side, kernels run in the order in which they could begin: low until 412, high until 462,
// low until 662, when the low turn ends, and high until 712. The high turn is idle until 762, and
// the policy holds off until 782. The low client launches from 792 to 794, and its kernel runs
// until 994.
TEST(GatedTimelines, SideBySide) {
  const Outcome outcome =
      RunScenario(*FindSetup("gated-priority-mps"), Exact(), TimelineScenario());
  EXPECT_EQ(outcome.clients[0].request_times, std::vector<Duration>{712us - 300us});
  EXPECT_EQ(outcome.clients[1].request_times, std::vector<Duration>{994us});
  EXPECT_EQ(outcome.decisions, 3U);
  // Both turns were on the device from 300 until 662, and each is charged half of that time.
  EXPECT_NEAR(ToUs(*outcome.clients[0].charged), 181 + 100, 0.01);
  EXPECT_NEAR(ToUs(*outcome.clients[1].charged), 300 + 181, 0.01);
}

// The first switch ends at 22 us, so the low context runs three kernels until 622; its slice lasts
// longer. The high one runs from 632 to 732, its turn until 782; the fourth low kernel is launched
// at 814 and runs from 824 to 1024.
TEST(GatedTimelines, TimeSliced) {
  const Outcome outcome = RunScenario(*FindSetup("gated-priority"), Exact(), TimelineScenario());
  EXPECT_EQ(outcome.clients[0].request_times, std::vector<Duration>{732us - 300us});
  EXPECT_EQ(outcome.clients[1].request_times, std::vector<Duration>{1024us});
}

// Charges of overlapping turns are divided, and add up to the time in which a turn was open.
TEST(GatedRuns, TurnsAreChargedToTheirClients) {
  Scenario scenario{.clients = {Requests(kHigh, std::vector<Kernel>(100, {1, 100us}), {0.02}),
                                {.name = "low",
                                 .spec = kLow,
                                 .job = {"step", {{1, 100us}}},
                                 .times_s = {},
                                 .depth = 2,
                                 .awake = {}}},
                    .length = 50ms};
  for (const std::string_view name : {"gated-priority-mps", "gated-deadline-mps"}) {
    const Outcome outcome = RunScenario(*FindSetup(name), Exact(), scenario);
    EXPECT_NEAR(ToUs(*outcome.clients[0].charged), 10e3, 300) << name;
    // The low client's last turn has not ended yet.
    EXPECT_NEAR(ToUs(*outcome.clients[1].charged), 20e3, 400) << name;
  }
}

// Forwards to a GPU, and checks what each low client has in flight when it launches.
class WatchedGpu final : public GpuDevice {
 public:
  WatchedGpu(std::unique_ptr<GpuDevice> gpu, const Scenario& scenario,
             std::uint32_t multiprocessors)
      : gpu_(std::move(gpu)), scenario_(scenario), multiprocessors_(multiprocessors) {}

  void Submit(const Work& work, TimePoint called) override {
    const bool is_low =
        scenario_.clients[work.stream].spec.scheduling_class == SchedulingClass::kLow;
    if (is_low && !IsCopy(work.kernel)) {
      EXPECT_LE(in_flight_[work.stream], GatedFront::kUrgentWindow);
    }
    const Duration time =
        IsCopy(work.kernel) ? Duration() : SoloTime(work.kernel, multiprocessors_);
    of_[work.id] = {work.stream, time};
    in_flight_[work.stream] += of_[work.id].second;
    gpu_->Submit(work, called);
  }
  void RequestStop(std::uint64_t, TimePoint) override { ADD_FAILURE() << "no kernel is preempted"; }
  std::optional<TimePoint> next_event() const override { return gpu_->next_event(); }
  void Advance(TimePoint now, std::vector<Finished>& finished) override {
    gpu_->Advance(now, finished);
    for (const Finished& one : finished) in_flight_[of_[one.id].first] -= of_[one.id].second;
  }

 private:
  const std::unique_ptr<GpuDevice> gpu_;
  const Scenario& scenario_;
  const std::uint32_t multiprocessors_;
  std::map<std::uint64_t, std::pair<std::size_t, Duration>> of_;
  std::map<std::size_t, Duration> in_flight_;
};

std::uint32_t Below(std::uint32_t limit, std::mt19937& random) {
  return static_cast<std::uint32_t>(random()) % limit;
}

Kernel RandomKernel(std::mt19937& random) {
  constexpr std::array kKinds{Kernel::Kind::kUnknown, Kernel::Kind::kUnknown,
                              Kernel::Kind::kCopyToDevice, Kernel::Kind::kCopyToHost};
  Kernel kernel{1, Duration(1'000 + Below(400'000, random)), kKinds[Below(4, random)]};
  kernel.blocks += Below(IsCopy(kernel) ? 4 : 300, random);
  if (Below(3, random) == 0) kernel.after = Duration(Below(200'000, random));
  return kernel;
}

// Clients of all classes, whose kernels and copies come together or one by one.
Scenario RandomScenario(std::uint32_t seed) {
  std::mt19937 random(seed);
  Scenario scenario;
  for (int i = 0; i < 5; ++i) {
    ClientSpec spec{.scheduling_class = static_cast<SchedulingClass>(i % 3)};
    if (i == 0) spec.latency_target = 20ms;
    std::vector<Kernel> kernels;
    for (std::uint32_t k = 1 + Below(12, random); k > 0; --k)
      kernels.push_back(RandomKernel(random));
    std::vector<double> times;
    for (int at = 0; at < 40; ++at) times.push_back(at * 0.02 + 1e-6 * Below(9000, random));
    scenario.clients.push_back(Requests(spec, kernels, times));
  }
  return scenario;
}

class GatedSetups : public ::testing::TestWithParam<std::string> {};

TEST_P(GatedSetups, EveryRequestEndsAndEqualSeedsGiveEqualTimes) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const Scenario scenario = RandomScenario(seed);
    SetupEntry setup = *FindSetup(GetParam());
    setup.make_device = [&, make = setup.make_device](const FrontOptions& options,
                                                      std::size_t clients) {
      return std::make_unique<WatchedGpu>(make(options, clients), scenario,
                                          options.multiprocessors);
    };
    const Outcome first = RunScenario(setup, {}, scenario);
    const Outcome again = RunScenario(setup, {}, scenario);
    Duration charged{};
    for (std::size_t i = 0; i < scenario.clients.size(); ++i) {
      EXPECT_EQ(first.clients[i].request_times.size(), 40U) << "seed " << seed << ", client " << i;
      EXPECT_EQ(first.clients[i].request_times, again.clients[i].request_times) << "seed " << seed;
      charged += *first.clients[i].charged;
    }
    EXPECT_LE(charged.count(), static_cast<Duration::rep>(1e9 * first.seconds));
  }
}

INSTANTIATE_TEST_SUITE_P(All, GatedSetups,
                         ::testing::Values("gated-priority", "gated-deadline", "gated-priority-mps",
                                           "gated-deadline-mps"),
                         [](const auto& each) {
                           std::string name = each.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace gpushared::simulation
