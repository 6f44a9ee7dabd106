// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/mix.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <utility>

#include "scheduler/class_name.h"
#include "scheduler/sim/arrivals.h"
#include "scheduler/sim/experiment.h"
#include "scheduler/sim/json_view.h"

#include <nlohmann/json.hpp>

namespace gpushared::simulation {
namespace {

using scheduler::Duration;
using scheduler::kClassNames;
using scheduler::SchedulingClass;

constexpr std::size_t kTextBytesMax = 4096;
constexpr double kSecondsMax = 86'400;
constexpr double kFrequencyMax = 1e6;
constexpr double kArrivalsMax = 1e7;
constexpr std::size_t kClosedRequestsMax = 1'000'000;

scheduler::ClientSpec GetSpec(const JsonView& load) {
  scheduler::ClientSpec spec{.scheduling_class = SchedulingClass::kLow};
  if (const auto priority = load.Find("priority"); priority && priority->Number(0, 1000) == 0)
    spec.scheduling_class = SchedulingClass::kHigh;
  if (const auto name = load.Find("class"))
    spec.scheduling_class = static_cast<SchedulingClass>(name->OneOf(kClassNames));
  if (const auto weight = load.Find("weight"))
    spec.weight = static_cast<std::uint32_t>(weight->Number(1, kWeightMax));
  if (const auto target = load.Find("latency_target_ms")) {
    spec.latency_target =
        Duration(static_cast<Duration::rep>(1e6 * target->Number(0.001, 1e3 * kSecondsMax)));
  }
  return spec;
}

// Returns the arrivals up to the end of the experiment.
std::vector<double> GetArrivals(const JsonView& load, const std::string& type, double length_s,
                                const std::filesystem::path& directory, std::uint32_t seed) {
  const double frequency = load.At("frequency").Number(1 / kSecondsMax, kFrequencyMax);
  if (frequency * length_s > kArrivalsMax) {
    load.At("frequency").Reject("that of at most " + std::to_string(kArrivalsMax) + " requests");
  }
  std::string kind = type == "uniform" ? "periodic" : type;
  if (type == "trace") kind = (directory / load.At("file").Text(kTextBytesMax)).string();
  const auto count = static_cast<std::size_t>(frequency * length_s * 1.5) + 16;
  Result<std::vector<double>> arrivals = MakeArrivals(kind, count, 1 / frequency, seed);
  if (!arrivals.ok())
    load.Reject("a load with arrivals: " + std::string(arrivals.status().message()));
  const auto end = std::lower_bound(arrivals->begin(), arrivals->end(), length_s);
  return {arrivals->begin(), end};
}

ClientPlan GetPlan(const JsonView& task, const std::map<std::string, Job>& profiles,
                   double length_s, const std::filesystem::path& directory, std::uint32_t seed) {
  const JsonView load = task.At("load");
  const JsonView model = task.At("client").At("model_name");
  const auto profile = profiles.find(model.Text(kTextBytesMax));
  if (profile == profiles.end()) model.Reject("a model with a kernel profile");
  ClientPlan plan{.name = task.At("id").Text(kTextBytesMax),
                  .spec = GetSpec(load),
                  .job = profile->second,
                  .times_s = {},
                  .awake = {}};
  const std::string type = load.At("type").Text(kTextBytesMax);
  constexpr std::array<std::string_view, 5> kOpen = {"periodic", "uniform", "poisson", "bursty",
                                                     "trace"};
  if (type == "continuous") {
    if (plan.spec.scheduling_class != SchedulingClass::kLow) {
      plan.pace = ClientPlan::Pace::kClosed;
      plan.times_s.assign(kClosedRequestsMax, 0.0);
    }
  } else if (std::find(kOpen.begin(), kOpen.end(), type) != kOpen.end()) {
    plan.pace = ClientPlan::Pace::kOpen;
    plan.times_s = GetArrivals(load, type, length_s, directory, seed);
  } else {
    load.At("type").Reject("one of continuous, periodic, uniform, poisson, bursty and trace");
  }
  return plan;
}

ClientRow GetRow(const ClientPlan& plan, const ClientOutcome& shared, double shared_s,
                 const ClientOutcome& alone, double alone_s) {
  ClientRow row;
  row.client = plan.name;
  row.scheduling_class = kClassNames[static_cast<std::size_t>(plan.spec.scheduling_class)];
  row.throughput = alone.jobs > 0 ? shared.jobs / shared_s / (alone.jobs / alone_s) : 0;
  row.target_met = 1;
  const std::vector<Duration>& times = shared.request_times;
  row.requests = times.size();
  if (times.empty()) return row;
  row.p50_ms = 1e3 * Seconds(Percentile(times, 0.5));
  row.p99_ms = 1e3 * Seconds(Percentile(times, 0.99));
  row.p99_alone_ms = 1e3 * Seconds(Percentile(alone.request_times, 0.99));
  if (plan.spec.latency_target) {
    const auto kept = std::count_if(times.begin(), times.end(), [&](Duration time) {
      return time <= *plan.spec.latency_target;
    });
    row.target_met = static_cast<double>(kept) / static_cast<double>(times.size());
  }
  return row;
}

}  // namespace

Result<Scenario> ReadMix(const std::string& path, const std::map<std::string, Job>& profiles,
                         std::uint32_t seed) {
  const Result<nlohmann::json> read = JsonView::Read(path);
  if (!read.ok()) return read.status();
  const JsonView document(*read);
  Scenario scenario;
  try {
    const double length_s = document.At("time").Number(1e-3, kSecondsMax);
    scenario.length = Duration(static_cast<Duration::rep>(1e9 * length_s));
    for (const JsonView& task : document.At("tasks").Items(1, scheduler::kClientsMax)) {
      const auto number = static_cast<std::uint32_t>(scenario.clients.size() + 1);
      scenario.clients.push_back(GetPlan(task, profiles, length_s,
                                         std::filesystem::path(path).parent_path(), seed + number));
    }
  } catch (const JsonView::Rejected& rejected) {
    return Status(StatusCode::kInvalidArgument, "'" + path + "': " + rejected.what());
  }
  return scenario;
}

std::vector<ClientRow> RunMix(const Scenario& scenario, const FrontOptions& options,
                              const std::vector<SetupEntry>& contestants) {
  std::vector<Outcome> alone;
  for (const ClientPlan& plan : scenario.clients) {
    alone.push_back(
        RunScenario(*FindSetup("mps"), options, {.clients = {plan}, .length = scenario.length}));
  }
  std::vector<ClientRow> rows;
  for (const SetupEntry& contestant : contestants) {
    const Outcome shared = RunScenario(contestant, options, scenario);
    for (std::size_t i = 0; i < scenario.clients.size(); ++i) {
      rows.push_back(GetRow(scenario.clients[i], shared.clients[i], shared.seconds,
                            alone[i].clients.front(), alone[i].seconds));
      rows.back().policy = contestant.name;
    }
  }
  return rows;
}

}  // namespace gpushared::simulation
