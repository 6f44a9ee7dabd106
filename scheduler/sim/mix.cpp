// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/mix.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "scheduler/class_name.h"
#include "scheduler/sim/arrivals.h"
#include "scheduler/sim/experiment.h"

#include <nlohmann/json.hpp>

namespace gpushared::simulation {
namespace {

using scheduler::Duration;
using scheduler::kClassNames;
using scheduler::SchedulingClass;
using Json = nlohmann::json;

constexpr double kSecondsMax = 86'400;
constexpr double kFrequencyMax = 1e6;
constexpr double kArrivalsMax = 1e7;
constexpr std::size_t kClosedRequestsMax = 1'000'000;

// Rejects the text by an exception that ReadMix catches.
[[noreturn]] void Reject(const std::string& what) { throw std::invalid_argument(what); }

double GetNumber(const Json& object, const char* name, double least, double most) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) Reject(std::string("no number '") + name + "'");
  const double value = found->get<double>();
  if (!(value >= least && value <= most)) {
    Reject(std::string("'") + name + "' is " + std::to_string(value) + ", not " +
           std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

std::string GetText(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) Reject(std::string("no text '") + name + "'");
  return found->get<std::string>();
}

const Json& GetObject(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_object()) Reject(std::string("no object '") + name + "'");
  return *found;
}

scheduler::ClientSpec GetSpec(const Json& load) {
  scheduler::ClientSpec spec{.scheduling_class = SchedulingClass::kLow};
  if (load.contains("priority") && GetNumber(load, "priority", 0, 1000) == 0)
    spec.scheduling_class = SchedulingClass::kHigh;
  if (load.contains("class")) {
    const std::string name = GetText(load, "class");
    const auto found = std::find(kClassNames.begin(), kClassNames.end(), name);
    if (found == kClassNames.end()) Reject("class '" + name + "', not high, normal or low");
    spec.scheduling_class = static_cast<SchedulingClass>(found - kClassNames.begin());
  }
  if (load.contains("weight"))
    spec.weight = static_cast<std::uint32_t>(GetNumber(load, "weight", 1, kWeightMax));
  if (load.contains("latency_target_ms")) {
    spec.latency_target = Duration(static_cast<Duration::rep>(
        1e6 * GetNumber(load, "latency_target_ms", 0.001, 1e3 * kSecondsMax)));
  }
  return spec;
}

// Returns the arrivals up to the end of the experiment.
std::vector<double> GetArrivals(const Json& load, const std::string& type, double length_s,
                                const std::filesystem::path& directory, std::uint32_t seed) {
  const double frequency = GetNumber(load, "frequency", 1 / kSecondsMax, kFrequencyMax);
  if (frequency * length_s > kArrivalsMax) {
    Reject(std::to_string(frequency * length_s) + " requests, at most " +
           std::to_string(kArrivalsMax));
  }
  std::string kind = type == "uniform" ? "periodic" : type;
  if (type == "trace") kind = (directory / GetText(load, "file")).string();
  const auto count = static_cast<std::size_t>(frequency * length_s * 1.5) + 16;
  Result<std::vector<double>> arrivals = MakeArrivals(kind, count, 1 / frequency, seed);
  if (!arrivals.ok()) Reject(arrivals.status().message());
  const auto end = std::lower_bound(arrivals->begin(), arrivals->end(), length_s);
  return {arrivals->begin(), end};
}

ClientPlan GetPlan(const Json& task, const std::map<std::string, Job>& profiles, double length_s,
                   const std::filesystem::path& directory, std::uint32_t seed) {
  const Json& load = GetObject(task, "load");
  const std::string model = GetText(GetObject(task, "client"), "model_name");
  const auto profile = profiles.find(model);
  if (profile == profiles.end()) Reject("no kernel profile for its model '" + model + "'");
  ClientPlan plan{.name = GetText(task, "id"),
                  .spec = GetSpec(load),
                  .job = profile->second,
                  .times_s = {},
                  .awake = {}};
  const std::string type = GetText(load, "type");
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
    Reject("load of type '" + type +
           "', not continuous, periodic, uniform, poisson, bursty or trace");
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
  std::ifstream file(path);
  if (!file) return Status(StatusCode::kInvalidArgument, "cannot read '" + path + "'");
  // The text is read here. A directory can be opened as well, and the parser would throw when it
  // reads one.
  std::ostringstream text;
  text << file.rdbuf();
  const Json document = Json::parse(text.str(), nullptr, false);
  if (!document.is_object())
    return Status(StatusCode::kInvalidArgument, "'" + path + "' is not a JSON object");
  Scenario scenario;
  std::string where;
  try {
    const double length_s = GetNumber(document, "time", 1e-3, kSecondsMax);
    scenario.length = Duration(static_cast<Duration::rep>(1e9 * length_s));
    const auto tasks = document.find("tasks");
    if (tasks == document.end() || !tasks->is_array() || tasks->empty() ||
        tasks->size() > scheduler::kClientsMax)
      Reject("no list 'tasks' of 1 to " + std::to_string(scheduler::kClientsMax));
    for (const Json& task : *tasks) {
      const std::size_t number = scenario.clients.size() + 1;
      where = " task " + std::to_string(number);
      if (!task.is_object()) Reject("not an object");
      scenario.clients.push_back(GetPlan(task, profiles, length_s,
                                         std::filesystem::path(path).parent_path(),
                                         seed + static_cast<std::uint32_t>(number)));
    }
  } catch (const std::invalid_argument& rejected) {
    return Status(StatusCode::kInvalidArgument, "'" + path + "'" + where + ": " + rejected.what());
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
