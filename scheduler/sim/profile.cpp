// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/profile.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "scheduler/class_name.h"
#include "scheduler/policy_catalog.h"
#include "scheduler/sim/json_view.h"

#include <nlohmann/json.hpp>

namespace gpushared::simulation {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr double kDayMs = 86'400e3;
constexpr double kStepUsMax = 3.6e9;  // Equal to scheduler::kCommandTimeMax.
constexpr double kMemoryMibMax = 1e9;
// Upper bound of the integers that a double represents exactly.
constexpr std::uint64_t kCountMax = std::uint64_t{1} << 53;

// Names of paces and of kinds of work, in the order of the enumerators.
constexpr std::array<std::string_view, 7> kPaceNames = {"endless", "open",   "in turn", "closed",
                                                        "poisson", "bursty", "periodic"};
constexpr std::array<std::string_view, 3> kWorkNames = {"kernel", "copy to device", "copy to host"};

double NumberOr(const JsonView& object, const char* name, double otherwise, double least,
                double most) {
  const std::optional<JsonView> found = object.Find(name);
  return !found ? otherwise : found->Number(least, most);
}

std::uint64_t CountOr(const JsonView& object, const char* name, std::uint64_t otherwise,
                      std::uint64_t least, std::uint64_t most) {
  const std::optional<JsonView> found = object.Find(name);
  return !found ? otherwise : found->Count(least, most);
}

scheduler::Duration Milliseconds(double ms) {
  return scheduler::Duration(static_cast<scheduler::Duration::rep>(std::llround(ms * 1e6)));
}
double InMilliseconds(scheduler::Duration time) { return static_cast<double>(time.count()) / 1e6; }

Profile::Kernel KernelFor(const JsonView& value) {
  value.AllowOnly({"name", "work"});
  Profile::Kernel kernel{.name = value.At("name").Text(kProfileNameBytesMax)};
  if (const auto work = value.Find("work"))
    kernel.work = static_cast<Profile::Work>(work->OneOf(kWorkNames));
  return kernel;
}

Profile::Step GetStep(const JsonView& value, std::size_t kernels) {
  const std::vector<JsonView> parts = value.Items(2, 3);
  Profile::Step step{.kernel = parts[0].Count(0, kernels - 1),
                     .us = parts[1].Number(0.001, kStepUsMax),
                     .after_us = {}};
  if (parts.size() == 3) step.after_us = parts[2].Number(0, kDayMs * 1e3);
  return step;
}

std::vector<Profile::Request> GetRequests(const JsonView& value, const Profile& profile) {
  const bool needs_time = profile.has_requests() && !profile.is_drawn();
  std::vector<Profile::Request> requests;
  std::size_t left = kProfileStepsMax;
  for (const JsonView& each : value.Items(1, kProfileRequestsMax)) {
    each.AllowOnly({"at_ms", "steps"});
    Profile::Request request;
    if (needs_time) request.at_ms = each.At("at_ms").Number(0, kDayMs);
    const bool ascends = profile.pace == Profile::Pace::kClosed || requests.empty() ||
                         request.at_ms >= requests.back().at_ms;
    if (!ascends) each.At("at_ms").Reject("at least that of the previous request");
    for (const JsonView& step : each.At("steps").Items(1, left))
      request.steps.push_back(GetStep(step, profile.kernels.size()));
    left -= request.steps.size();
    requests.push_back(std::move(request));
  }
  return requests;
}

Profile GetProfile(const JsonView& value) {
  value.AllowOnly({"gpushared_profile", "name", "class", "weight", "share_group",
                   "max_share_percent", "latency_target_ms", "memory_mib", "pace", "every_ms",
                   "kernels", "requests", "seen"});
  value.At("gpushared_profile").Count(1, 1);
  Profile profile;
  profile.name = value.At("name").Text(kProfileNameBytesMax);
  profile.spec.scheduling_class =
      static_cast<scheduler::SchedulingClass>(value.At("class").OneOf(scheduler::kClassNames));
  profile.spec.weight = static_cast<std::uint32_t>(CountOr(value, "weight", 1, 1, kWeightMax));
  if (const auto group = value.Find("share_group")) profile.spec.group = group->Count(0, kCountMax);
  if (const auto target = value.Find("latency_target_ms"))
    profile.spec.latency_target = Milliseconds(target->Number(0.001, kDayMs));
  profile.max_share_percent = NumberOr(value, "max_share_percent", 100, 0.1, 100);
  profile.memory_mib = NumberOr(value, "memory_mib", 0, 0, kMemoryMibMax);
  profile.pace = static_cast<Profile::Pace>(value.At("pace").OneOf(kPaceNames));
  if (profile.is_drawn()) profile.every_ms = value.At("every_ms").Number(0.001, kDayMs);
  for (const JsonView& kernel : value.At("kernels").Items(1, kProfileKernelsMax))
    profile.kernels.push_back(KernelFor(kernel));
  profile.requests = GetRequests(value.At("requests"), profile);
  if (const auto seen = value.Find("seen")) {
    seen->AllowOnly({"seconds", "shared_percent", "lost", "streams"});
    profile.seen = {.seconds = NumberOr(*seen, "seconds", 0, 0, kDayMs),
                    .shared_percent = NumberOr(*seen, "shared_percent", 0, 0, 100),
                    .lost = CountOr(*seen, "lost", 0, 0, kCountMax),
                    .streams = static_cast<std::uint32_t>(CountOr(*seen, "streams", 0, 0, 256))};
  }
  return profile;
}

std::vector<double> GetQuantiles(const JsonView& value, const char* name, double most) {
  std::vector<double> quantiles;
  const std::optional<JsonView> found = value.Find(name);
  if (!found) return quantiles;
  for (const JsonView& each : found->Items(1, kCostQuantiles))
    quantiles.push_back(each.Number(0, most));
  return quantiles;
}

Node::Costs GetCosts(const JsonView& value) {
  constexpr double kUsMax = 1e6;
  value.AllowOnly({"launch_us", "gap_us", "notice_us", "stop_us", "launch_bubble_us", "samples",
                   "stops", "launches_us", "gaps_us", "notices_us"});
  Node::Costs costs;
  costs.launch_us = NumberOr(value, "launch_us", costs.launch_us, 0, kUsMax);
  costs.gap_us = NumberOr(value, "gap_us", costs.gap_us, 0, kUsMax);
  costs.notice_us = NumberOr(value, "notice_us", costs.notice_us, 0, kUsMax);
  costs.stop_us = NumberOr(value, "stop_us", costs.stop_us, 0, kUsMax);
  if (const auto launch_bubble = value.Find("launch_bubble_us"))
    costs.launch_bubble_us = launch_bubble->Number(0.001, kUsMax);
  costs.launches_us = GetQuantiles(value, "launches_us", kUsMax);
  costs.gaps_us = GetQuantiles(value, "gaps_us", kUsMax);
  costs.notices_us = GetQuantiles(value, "notices_us", kUsMax);
  costs.samples = CountOr(value, "samples", 0, 0, kCountMax);
  costs.stops = CountOr(value, "stops", 0, 0, kCountMax);
  return costs;
}

Node GetNode(const JsonView& value) {
  value.AllowOnly({"gpushared_node", "name", "kind", "multiprocessors", "stops_within_commands",
                   "memory_mib", "policy", "slice_ms", "low_floor", "costs", "clients"});
  value.At("gpushared_node").Count(1, 1);
  Node node;
  node.name = value.At("name").Text(kProfileNameBytesMax);
  node.kind = value.At("kind").Text(kProfileNameBytesMax);
  node.multiprocessors = static_cast<std::uint32_t>(value.At("multiprocessors").Count(1, 4096));
  node.stops_within_commands = CountOr(value, "stops_within_commands", 1, 0, 1) == 1;
  node.memory_mib = NumberOr(value, "memory_mib", 0, 0, kMemoryMibMax);
  const JsonView policy = value.At("policy");
  node.policy = policy.Text(kProfileNameBytesMax);
  if (scheduler::FindPolicy(node.policy) == nullptr)
    policy.Reject("one of " + scheduler::PolicyNames());
  node.options.slice =
      Milliseconds(NumberOr(value, "slice_ms", InMilliseconds(node.options.slice), 0.001, 1e6));
  node.options.low_floor = NumberOr(value, "low_floor", 0, 0, 0.9);
  if (const std::string_view why = scheduler::WhyInvalid(node.options); !why.empty())
    value.Reject("a node whose policy can run: " + std::string(why));
  if (const auto costs = value.Find("costs")) node.costs = GetCosts(*costs);
  for (const JsonView& client : value.At("clients").Items(0, kNodeClientsMax))
    node.clients.push_back(GetProfile(client));
  return node;
}

template <typename T>
Result<T> ReadAs(const std::string& path, T (*make)(const JsonView&)) {
  const Result<nlohmann::json> read = JsonView::Read(path);
  if (!read.ok()) return read.status();
  try {
    return make(JsonView(*read));
  } catch (const JsonView::Rejected& rejected) {
    return Status(StatusCode::kInvalidArgument, "'" + path + "': " + rejected.what());
  }
}

// Rounds to nanoseconds, to shorten the files.
double Rounded(double value) { return std::round(value * 1e3) / 1e3; }

OrderedJson GetSteps(const Profile::Request& request) {
  OrderedJson steps = OrderedJson::array();
  for (const Profile::Step& step : request.steps) {
    OrderedJson row = {step.kernel, std::max(Rounded(step.us), 0.001)};
    if (step.after_us) row.push_back(Rounded(*step.after_us));
    steps.push_back(std::move(row));
  }
  return steps;
}

OrderedJson GetHead(const Profile& profile) {
  OrderedJson head = {{"gpushared_profile", 1},
                      {"name", profile.name},
                      {"class", scheduler::ClassName(profile.spec.scheduling_class)},
                      {"weight", profile.spec.weight},
                      {"max_share_percent", profile.max_share_percent}};
  if (profile.spec.group) head["share_group"] = *profile.spec.group;
  if (profile.spec.latency_target)
    head["latency_target_ms"] = InMilliseconds(*profile.spec.latency_target);
  if (profile.memory_mib > 0) head["memory_mib"] = Rounded(profile.memory_mib);
  head["pace"] = kPaceNames.at(static_cast<std::size_t>(profile.pace));
  if (profile.is_drawn()) head["every_ms"] = profile.every_ms;
  head["seen"] = {{"seconds", Rounded(profile.seen.seconds)},
                  {"shared_percent", Rounded(profile.seen.shared_percent)},
                  {"lost", profile.seen.lost},
                  {"streams", profile.seen.streams}};
  for (const Profile::Kernel& kernel : profile.kernels) {
    OrderedJson row = {{"name", kernel.name}};
    if (kernel.work != Profile::Work::kKernel)
      row["work"] = kWorkNames.at(static_cast<std::size_t>(kernel.work));
    head["kernels"].push_back(std::move(row));
  }
  return head;
}

// Replaces invalid UTF-8, because names come from clients.
std::string Dump(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// Formats the object with a line for each member, and for each item of the list that ends the
// object.
std::string GetLines(const OrderedJson& head, const std::string& list,
                     const std::vector<std::string>& items) {
  std::string text = "{";
  for (const auto& [name, value] : head.items())
    text += "\n " + Dump(name) + ": " + Dump(value) + ",";
  text += "\n \"" + list + "\": [";
  for (std::size_t i = 0; i < items.size(); ++i) text += (i == 0 ? "\n  " : ",\n  ") + items[i];
  return text + "]}";
}

std::string GetText(const Profile& profile) {
  std::vector<std::string> requests;
  for (const Profile::Request& request : profile.requests) {
    OrderedJson row = OrderedJson::object();
    if (profile.has_requests() && !profile.is_drawn()) row["at_ms"] = Rounded(request.at_ms);
    row["steps"] = GetSteps(request);
    requests.push_back(Dump(row));
  }
  return GetLines(GetHead(profile), "requests", requests);
}

}  // namespace

Result<Profile> ReadProfile(const std::string& path) { return ReadAs<Profile>(path, GetProfile); }

Result<Node> ReadNode(const std::string& path) { return ReadAs<Node>(path, GetNode); }

std::string ProfileText(const Profile& profile) { return GetText(profile) + "\n"; }

std::string NodeText(const Node& node) {
  OrderedJson head = {{"gpushared_node", 1},
                      {"name", node.name},
                      {"kind", node.kind},
                      {"multiprocessors", node.multiprocessors},
                      {"stops_within_commands", node.stops_within_commands ? 1 : 0},
                      {"memory_mib", Rounded(node.memory_mib)},
                      {"policy", node.policy},
                      {"slice_ms", InMilliseconds(node.options.slice)},
                      {"low_floor", node.options.low_floor}};
  head["costs"] = {{"launch_us", Rounded(node.costs.launch_us)},
                   {"gap_us", Rounded(node.costs.gap_us)},
                   {"notice_us", Rounded(node.costs.notice_us)},
                   {"stop_us", Rounded(node.costs.stop_us)},
                   {"samples", node.costs.samples},
                   {"stops", node.costs.stops}};
  if (node.costs.launch_bubble_us)
    head["costs"]["launch_bubble_us"] = Rounded(*node.costs.launch_bubble_us);
  const auto add = [&](const char* name, const std::vector<double>& quantiles) {
    for (const double each : quantiles) head["costs"][name].push_back(Rounded(each));
  };
  add("launches_us", node.costs.launches_us);
  add("gaps_us", node.costs.gaps_us);
  add("notices_us", node.costs.notices_us);
  std::vector<std::string> clients;
  for (const Profile& client : node.clients) clients.push_back(GetText(client));
  return GetLines(head, "clients", clients) + "\n";
}

}  // namespace gpushared::simulation
