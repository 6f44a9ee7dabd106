// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/advice.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <tuple>
#include <utility>

#include "scheduler/class_name.h"
#include "scheduler/sim/arrivals.h"
#include "scheduler/sim/experiment.h"

namespace gpushared::simulation {
namespace {

using scheduler::Duration;

// Bounds of the simulated time, which is the length of a recording or of kDrawnRequests requests.
constexpr double kSecondsLeast = 10, kSecondsMost = 300;
constexpr double kDrawnRequests = 1000;
constexpr std::size_t kArrivalsMost = 1'000'000;
// Warm-up requests, because a simulated predictor starts without the samples that the predictor of
// a running server has.
constexpr std::size_t kWarmUp = 20;
// Interval at which a preemptible kernel checks for a stop.
constexpr Duration kPiece = std::chrono::microseconds(50);
constexpr std::int64_t kPiecesMost = 512;

Duration Microseconds(double us) {
  return Duration(static_cast<Duration::rep>(std::llround(us * 1e3)));
}
std::vector<Duration> GetDurations(const std::vector<double>& times_us) {
  std::vector<Duration> times;
  for (const double us : times_us) times.push_back(Microseconds(us));
  return times;
}
double Milliseconds(Duration time) { return 1e3 * Seconds(time); }

// Models the step's kernel as equal pieces, each of which fills the device, and which together take
// the step's time.
Kernel KernelFor(const Profile::Step& step, const Profile& profile, const Node& node,
                 std::uint64_t cost_keys) {
  const Duration time = Microseconds(step.us);
  const std::int64_t pieces = std::clamp<std::int64_t>(time / kPiece, 1, kPiecesMost);
  Kernel kernel{.blocks = static_cast<std::uint32_t>(pieces) * node.multiprocessors,
                .block_time = std::max(time / pieces, Duration(1)),
                .cost_key = cost_keys + step.kernel};
  const Profile::Work work = profile.kernels[step.kernel].work;
  if (node.kind != "cpu" && work != Profile::Work::kKernel) {
    kernel.blocks = static_cast<std::uint32_t>(pieces);
    kernel.kind = work == Profile::Work::kCopyToDevice ? Kernel::Kind::kCopyToDevice
                                                       : Kernel::Kind::kCopyToHost;
  }
  if (step.after_us) kernel.after = Microseconds(*step.after_us);
  return kernel;
}

// Returns the times from each arrival to the next. The last element, between the end of the
// recording and its repetition, is the mean of the others.
std::vector<double> GetDistances(const Profile& profile) {
  const std::size_t count = profile.requests.size();
  std::vector<double> distances;
  for (std::size_t i = 0; i + 1 < count; ++i)
    distances.push_back((profile.requests[i + 1].at_ms - profile.requests[i].at_ms) / 1e3);
  const double total = std::accumulate(distances.begin(), distances.end(), 0.0);
  const double mean = count > 1 ? total / static_cast<double>(count - 1) : 0;
  distances.push_back(mean > 0 ? mean : std::max(profile.seen.seconds, 1.0));
  return distances;
}

double GetLength(const Profile& profile) {
  if (profile.is_drawn()) return kDrawnRequests * profile.every_ms / 1e3;
  if (!profile.has_requests()) return 0;
  if (profile.pace == Profile::Pace::kClosed) return profile.seen.seconds;
  const std::vector<double> distances = GetDistances(profile);
  return std::accumulate(distances.begin(), distances.end(), 0.0);
}

// Returns the arrivals, ascending, up to `seconds`. For a closed loop, returns the pauses before
// the requests instead, enough of them for `seconds`.
std::vector<double> GetTimes(const Profile& profile, double seconds, std::size_t first,
                             double offset_s, std::uint32_t seed) {
  if (profile.is_drawn()) {
    const double every_s = profile.every_ms / 1e3;
    const std::string kind = profile.pace == Profile::Pace::kPoisson  ? "poisson"
                             : profile.pace == Profile::Pace::kBursty ? "bursty"
                                                                      : "periodic";
    // Drawn intervals can be shorter than their mean, so 1.5 times as many arrivals are drawn.
    const auto count = static_cast<std::size_t>(
        std::min(1.5 * seconds / every_s + 16, static_cast<double>(kArrivalsMost)));
    Result<std::vector<double>> drawn = MakeArrivals(kind, count, every_s, seed);
    std::vector<double> times = std::move(drawn).value();
    times.erase(std::lower_bound(times.begin(), times.end(), seconds), times.end());
    return times;
  }
  std::vector<double> times;
  const std::size_t count = profile.requests.size();
  if (profile.pace == Profile::Pace::kClosed) {
    double total = 0;
    for (std::size_t i = first; total < seconds && times.size() < kArrivalsMost; ++i) {
      const Profile::Request& request = profile.requests[i % count];
      times.push_back(request.at_ms / 1e3);
      total += times.back();
      for (const Profile::Step& step : request.steps) total += step.us / 1e6;
    }
    return times;
  }
  const std::vector<double> distances = GetDistances(profile);
  double at = offset_s;
  for (std::size_t i = first; at < seconds && times.size() < kArrivalsMost; ++i) {
    times.push_back(at);
    at += distances[i % count];
  }
  return times;
}

ClientPlan::Pace GetPace(const Profile& profile) {
  switch (profile.pace) {
    case Profile::Pace::kEndless:
      return ClientPlan::Pace::kEndless;
    case Profile::Pace::kInTurn:
      return ClientPlan::Pace::kInTurn;
    case Profile::Pace::kClosed:
      return ClientPlan::Pace::kClosed;
    default:
      return ClientPlan::Pace::kOpen;
  }
}

// Totals of one client over all seeds.
struct Tally {
  std::vector<Duration> times;
  std::vector<double> p99_ms;  // One per seed with requests.
  double jobs = 0, seconds = 0, charged_s = 0, arrived = 0, ended = 0;
};

void Count(const ClientPlan& plan, const Outcome& outcome, std::size_t number, Tally& tally) {
  const ClientOutcome& client = outcome.clients[number];
  tally.jobs += client.jobs;
  tally.seconds += outcome.seconds;
  tally.charged_s += Seconds(client.charged.value_or(Duration()));
  tally.arrived += static_cast<double>(plan.times_s.size());
  tally.ended += static_cast<double>(client.request_times.size());
  const std::vector<Duration>& times = client.request_times;
  const std::size_t skipped = std::min(kWarmUp, times.size() / 2);
  const std::vector<Duration> counted(times.begin() + static_cast<std::ptrdiff_t>(skipped),
                                      times.end());
  if (counted.empty()) return;
  tally.p99_ms.push_back(Milliseconds(Percentile(counted, 0.99)));
  tally.times.insert(tally.times.end(), counted.begin(), counted.end());
}

double P99(const Tally& tally) {
  return tally.times.empty() ? 0 : Milliseconds(Percentile(tally.times, 0.99));
}

// Sets the interval of the p99 to the smallest one that contains two others: the range of the
// seeds' p99, and the order statistics between which the p99 of this number of requests lies with
// 95 % confidence. Source: David and Nagaraja, Order Statistics, 2003, 7.1.
void SetInterval(const Tally& tally, ClientAdvice& advice) {
  if (tally.times.empty()) return;
  const double half =
      1.96 *
      std::sqrt(0.99 * 0.01 / static_cast<double>(std::max<std::size_t>(advice.requests, 1)));
  const auto [low, high] = std::minmax_element(tally.p99_ms.begin(), tally.p99_ms.end());
  const double below = Milliseconds(Percentile(tally.times, std::max(0.99 - half, 0.5)));
  const double above = Milliseconds(Percentile(tally.times, std::min(0.99 + half, 1.0)));
  advice.p99_low_ms = std::min(*low, below);
  advice.p99_high_ms = std::max(*high, above);
}

ClientAdvice GetAdvice(const Profile& profile, const Tally& with, const Tally& now) {
  ClientAdvice advice{
      .name = profile.name,
      .scheduling_class = std::string(scheduler::ClassName(profile.spec.scheduling_class)),
      .latency_target_ms = {},
      .requests = profile.has_requests() ? profile.requests.size() : 0};
  if (profile.is_drawn()) advice.requests = static_cast<std::size_t>(kDrawnRequests);
  advice.p99_now_ms = P99(now);
  advice.p99_ms = P99(with);
  SetInterval(with, advice);
  if (profile.spec.latency_target && profile.has_requests()) {
    advice.latency_target_ms = Milliseconds(*profile.spec.latency_target);
    const auto kept = std::count_if(with.times.begin(), with.times.end(), [&](Duration time) {
      return time <= *profile.spec.latency_target;
    });
    if (!with.times.empty())
      advice.met_percent =
          100.0 * static_cast<double>(kept) / static_cast<double>(with.times.size());
  }
  const double rate_now = now.seconds > 0 ? now.jobs / now.seconds : 0;
  if (rate_now > 0) advice.pace_percent = 100 * with.jobs / with.seconds / rate_now;
  advice.device_percent = 100 * with.charged_s / with.seconds;
  // A closed loop cannot fall behind: more requests are planned for it than it can start.
  constexpr double kEndedLeast = 0.95;
  advice.falls_behind = profile.has_requests() && profile.pace != Profile::Pace::kClosed &&
                        with.ended < kEndedLeast * with.arrived - 2;
  return advice;
}

std::string Shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.2f" : "%.1f", value);
  return text;
}

std::vector<std::string> GetReasons(const Advice& advice, const AdviceOptions& options) {
  std::vector<std::string> reasons;
  if (advice.memory_mib > advice.memory_free_mib && advice.memory_free_mib > 0) {
    reasons.push_back("the job needs " + Shown(advice.memory_mib) + " MiB, but only " +
                      Shown(advice.memory_free_mib) + " MiB are free");
  }
  for (const ClientAdvice& client : advice.clients) {
    if (client.falls_behind) {
      reasons.push_back(client.name +
                        " would fall behind: its requests arrive faster than they are "
                        "answered");
    } else if (client.is_late()) {
      std::string reason = client.name + " would meet its target of " +
                           Shown(*client.latency_target_ms) + " ms for " +
                           Shown(client.met_percent) + "% of its requests, but 99% are required";
      if (client.p99_now_ms > *client.latency_target_ms)
        reason += client.is_job ? ", even alone" : "; it misses the target already now";
      reasons.push_back(reason);
    } else if (client.pace_percent < options.least_pace_percent) {
      reasons.push_back(client.name + " would keep " + Shown(client.pace_percent) +
                        "% of its pace, but " + Shown(options.least_pace_percent) +
                        "% are required");
    }
  }
  return reasons;
}

// Returns the weaknesses of the profile's data; empty if there are none.
std::vector<std::string> DoubtsAbout(const Profile& profile) {
  constexpr std::size_t kRequestsLeast = 100;
  constexpr std::size_t kSamplesLeast = 9;
  constexpr double kSharedMost = 20;  // Percent.
  std::vector<std::string> doubts;
  const std::string name = profile.name;
  if (profile.has_requests() && !profile.is_drawn() && profile.requests.size() < kRequestsLeast) {
    doubts.push_back("the p99 of " + name + " rests on " + std::to_string(profile.requests.size()) +
                     " requests, fewer than " + std::to_string(kRequestsLeast));
  }
  std::vector<std::size_t> samples(profile.kernels.size());
  for (const Profile::Request& request : profile.requests)
    for (const Profile::Step& step : request.steps) ++samples[step.kernel];
  const auto few = static_cast<std::size_t>(std::count_if(
      samples.begin(), samples.end(), [](std::size_t count) { return count < kSamplesLeast; }));
  if (2 * few > samples.size()) {
    doubts.push_back(std::to_string(few) + " of " + std::to_string(samples.size()) +
                     " kernels of " + name + " were measured fewer than " +
                     std::to_string(kSamplesLeast) + " times");
  }
  if (profile.seen.shared_percent > kSharedMost) {
    doubts.push_back(name + " was measured alongside others for " +
                     Shown(profile.seen.shared_percent) + "% of its device time");
  }
  if (profile.seen.lost > 0)
    doubts.push_back(std::to_string(profile.seen.lost) + " events of " + name + " were lost");
  if (profile.seen.streams > 1) {
    doubts.push_back(name + " has " + std::to_string(profile.seen.streams) +
                     " streams, which count as one");
  }
  return doubts;
}

// Clients of a run, with the job as the last one.
struct Company {
  std::vector<Profile> profiles;
  double seconds = 0;

  Scenario InTurn(std::size_t turn, const Node& node, const AdviceOptions& options) const {
    Scenario scenario{.clients = {}, .length = Microseconds(1e6 * seconds)};
    for (std::size_t i = 0; i < profiles.size(); ++i) {
      const auto seed = static_cast<std::uint32_t>(options.seed + turn * 1'000'003 + i * 7'919);
      scenario.clients.push_back(GetPlan(profiles[i], node, seconds, turn, seed));
    }
    return scenario;
  }
};

Company GetCompany(const Node& node, const Profile& job) {
  Company company{.profiles = node.clients, .seconds = kSecondsLeast};
  company.profiles.push_back(job);
  for (const Profile& profile : company.profiles)
    company.seconds = std::max(company.seconds, GetLength(profile));
  company.seconds = std::min(company.seconds, kSecondsMost);
  return company;
}

// Ranks nodes where the job fits first, then by the largest ratio of p99 to latency target, then by
// the largest loss of pace.
std::tuple<bool, double, double> GetRank(const Advice& advice) {
  double nearest = 0, pace = 100;
  for (const ClientAdvice& client : advice.clients) {
    if (client.latency_target_ms)
      nearest = std::max(nearest, client.p99_ms / *client.latency_target_ms);
    pace = std::min(pace, client.pace_percent);
  }
  return {!advice.fits(), nearest, -pace};
}

}  // namespace

FrontOptions GetFrontOptions(const Node& node) {
  const Node::Costs& costs = node.costs;
  FrontOptions options;
  options.multiprocessors = node.multiprocessors;
  options.costs = {.launch_call = {},  // Included in launch_delay.
                   .launch_delay = Microseconds(costs.launch_us),
                   .kernel_gap = Microseconds(costs.gap_us),
                   .notice = Microseconds(costs.notice_us),
                   .stop_flag = {},
                   // `stop_us` includes the wait for a running piece, half a piece on average. The
                   // simulation adds this wait itself, so it is subtracted here.
                   .drain = std::max(Microseconds(costs.stop_us) - kPiece / 2, Duration()),
                   .claim = {}};
  options.costs.launch_delays = GetDurations(costs.launches_us);
  options.costs.kernel_gaps = GetDurations(costs.gaps_us);
  options.costs.notices = GetDurations(costs.notices_us);
  if (node.kind == "cpu") options.order = StreamOrder::kSubmitted;
  options.policy = node.options;
  options.claims = node.stops_within_commands;
  if (costs.launch_bubble_us) options.launch_bubble = Microseconds(*costs.launch_bubble_us);
  return options;
}

ClientPlan GetPlan(const Profile& profile, const Node& node, double seconds, std::size_t turn,
                   std::uint32_t seed) {
  std::mt19937_64 random(seed);
  const std::size_t count = profile.requests.size();
  const std::size_t first = turn == 0 ? 0 : random() % count;
  ClientPlan plan{.name = profile.name,
                  .spec = profile.spec,
                  .job = {},
                  .pace = GetPace(profile),
                  .times_s = {},
                  .awake = {}};
  if (profile.max_share_percent < 100)
    plan.max_share = static_cast<std::uint32_t>(std::lround(10 * profile.max_share_percent));
  // Kernels of different clients have different keys.
  const std::uint64_t cost_keys = std::uint64_t{seed} << 16 | 1;
  for (std::size_t i = 0; i < count; ++i) {
    Job job{.name = profile.name, .kernels = {}};
    for (const Profile::Step& step : profile.requests[(first + i) % count].steps)
      job.kernels.push_back(KernelFor(step, profile, node, cost_keys));
    plan.jobs.push_back(std::move(job));
  }
  if (profile.has_requests()) {
    double offset_s = 0;
    if (turn > 0) {
      const double mean_s = GetLength(profile) / static_cast<double>(count);
      offset_s = mean_s * std::uniform_real_distribution<double>(0, 1)(random);
    } else if (profile.pace != Profile::Pace::kClosed) {
      offset_s = profile.requests.front().at_ms / 1e3;
    }
    plan.times_s = GetTimes(profile, seconds, first, offset_s, seed);
  } else if (!plan.jobs.front().kernels.front().after) {
    plan.depth = 2;
  }
  return plan;
}

void Judge(const Node& node, const Profile& job, const AdviceOptions& options, Advice& advice) {
  constexpr std::uint64_t kSamplesLeast = 9;
  advice.reasons = GetReasons(advice, options);
  bool is_near = false;
  for (const ClientAdvice& client : advice.clients) {
    if (!client.latency_target_ms || client.falls_behind) continue;
    if (client.p99_low_ms > *client.latency_target_ms ||
        client.p99_high_ms <= *client.latency_target_ms)
      continue;
    is_near = true;
    advice.doubts.push_back("the p99 of " + client.name + " may be " + Shown(client.p99_low_ms) +
                            " to " + Shown(client.p99_high_ms) +
                            " ms, on both sides of its target");
  }
  for (const Profile& client : node.clients) {
    for (std::string& doubt : DoubtsAbout(client)) advice.doubts.push_back(std::move(doubt));
  }
  for (std::string& doubt : DoubtsAbout(job)) advice.doubts.push_back(std::move(doubt));
  if (node.costs.samples < kSamplesLeast) {
    advice.doubts.push_back("the costs of " + node.name + " rest on " +
                            std::to_string(node.costs.samples) + " launches");
  }
  if (node.costs.stops == 0 && node.stops_within_commands && node.policy != "fifo")
    advice.doubts.push_back("no stop was observed on " + node.name);
  advice.certainty = is_near                    ? Advice::Certainty::kUnsure
                     : advice.doubts.empty()    ? Advice::Certainty::kSure
                     : advice.doubts.size() < 4 ? Advice::Certainty::kLikely
                                                : Advice::Certainty::kUnsure;
}

Advice Advise(const Node& node, const Profile& job, const AdviceOptions& options) {
  const Company company = GetCompany(node, job);
  const std::vector<Profile>& profiles = company.profiles;
  const SetupEntry setup = *FindSetup(node.policy);
  FrontOptions front = GetFrontOptions(node);
  std::vector<Tally> with(profiles.size()), now(profiles.size());
  double gap_s = 0, total_s = 0, lower_s = 0;
  for (std::size_t turn = 0; turn < options.seeds; ++turn) {
    const Scenario together = company.InTurn(turn, node, options);
    front.costs.seed = static_cast<std::uint32_t>(options.seed + turn);
    Scenario before = together;
    before.clients.pop_back();
    const Scenario alone{.clients = {together.clients.back()}, .length = together.length};
    const Outcome shared = RunScenario(setup, front, together);
    for (std::size_t i = 0; i < profiles.size(); ++i) {
      Count(together.clients[i], shared, i, with[i]);
      const bool is_high = profiles[i].spec.scheduling_class == scheduler::SchedulingClass::kHigh;
      if (!is_high) lower_s += Seconds(shared.clients[i].charged.value_or(Duration()));
    }
    gap_s += Seconds(shared.gap);
    total_s += shared.seconds;
    if (!before.clients.empty()) {
      const Outcome outcome = RunScenario(setup, front, before);
      for (std::size_t i = 0; i < before.clients.size(); ++i)
        Count(before.clients[i], outcome, i, now[i]);
    }
    Count(alone.clients[0], RunScenario(setup, front, alone), 0, now.back());
  }

  Advice advice{.node = node.name, .job = job.name, .policy = node.policy};
  for (std::size_t i = 0; i < profiles.size(); ++i)
    advice.clients.push_back(GetAdvice(profiles[i], with[i], now[i]));
  advice.clients.back().is_job = true;
  advice.gap_percent = 100 * gap_s / total_s;
  advice.lower_percent = 100 * lower_s / total_s;
  if (node.memory_mib > 0) {
    advice.memory_mib = job.memory_mib;
    advice.memory_free_mib = node.memory_mib;
    for (const Profile& client : node.clients) advice.memory_free_mib -= client.memory_mib;
  }
  Judge(node, job, options, advice);
  return advice;
}

std::vector<std::vector<Advice>> Place(std::vector<Node> nodes, const std::vector<Profile>& jobs,
                                       const AdviceOptions& options) {
  std::vector<std::vector<Advice>> placed;
  for (const Profile& job : jobs) {
    std::vector<Advice>& ranked = placed.emplace_back();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      ranked.push_back(Advise(nodes[i], job, options));
      ranked.back().node_number = i;
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const Advice& a, const Advice& b) { return GetRank(a) < GetRank(b); });
    if (ranked.front().fits()) nodes[ranked.front().node_number].clients.push_back(job);
  }
  return placed;
}

double SmallestShare(const Node& node, const Profile& job, const AdviceOptions& options) {
  constexpr double kStep = 10, kPaceLeast = 95;
  Profile capped = job;
  capped.max_share_percent = 100;
  const AdviceOptions once{
      .seeds = 1, .seed = options.seed, .least_pace_percent = options.least_pace_percent};
  const double needed = Advise(node, capped, once).clients.back().device_percent;
  for (double share = kStep * std::max(std::ceil(needed / kStep), 1.0); share < 100;
       share += kStep) {
    capped.max_share_percent = share;
    const Advice advice = Advise(node, capped, once);
    if (advice.fits() && advice.clients.back().device_percent >= needed * kPaceLeast / 100)
      return share;
  }
  return 100;
}

}  // namespace gpushared::simulation
