// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/profile/recorder.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <variant>

namespace gpushared::server {
namespace {

using scheduler::Duration;
using scheduler::TimePoint;
using simulation::Node;
using simulation::Profile;

// Times that differ by less are treated as equal, because two threads read the clock.
constexpr Duration kSameTime = std::chrono::microseconds(5);

double Microseconds(Duration time) { return static_cast<double>(time.count()) / 1e3; }
double Milliseconds(Duration time) { return static_cast<double>(time.count()) / 1e6; }

TimePoint TakenAt(const trace::Slice& slice) { return slice.submitted - slice.waited; }
// Returns the time at which the server could have detected the end if the slice had run alone.
TimePoint KnownAt(const trace::Slice& slice) { return slice.charged_from + slice.charged; }

Profile::Work GetWork(trace::Work work) {
  switch (work) {
    case trace::Work::kCopyToDevice:
      return Profile::Work::kCopyToDevice;
    case trace::Work::kCopyToHost:
      return Profile::Work::kCopyToHost;
    default:
      return Profile::Work::kKernel;
  }
}

double Variance(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return sum / count;
}

std::optional<double> MedianUs(std::vector<Duration> samples) {
  if (samples.empty()) return {};
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return Microseconds(*middle);
}

std::vector<double> QuantilesUs(std::vector<Duration> samples) {
  constexpr std::size_t kMost = simulation::kCostQuantiles;
  std::sort(samples.begin(), samples.end());
  std::vector<double> quantiles;
  const std::size_t count = std::min(samples.size(), kMost);
  for (std::size_t i = 0; i < count; ++i)
    quantiles.push_back(Microseconds(samples[(2 * i + 1) * samples.size() / (2 * count)]));
  return quantiles;
}

// Keeps `after_us` (the wait for the previous step) only for steps that are late at least nine
// times out of ten. A step that is late less often was delayed by the machine, so it is treated as
// submitted without waiting. The times are counted over the steps at the same position of a
// request; without requests, over the steps with the same kernel and the same predecessor.
void KeepUsualWaits(Profile& profile) {
  struct Count {
    std::size_t steps = 0, late = 0;
  };
  std::map<std::pair<std::size_t, std::size_t>, Count> counts;
  const auto for_each = [&](auto act) {
    for (Profile::Request& request : profile.requests) {
      for (std::size_t i = 1; i < request.steps.size(); ++i) {
        Profile::Step& step = request.steps[i];
        const std::size_t before = request.steps[i - 1].kernel;
        const auto place =
            profile.has_requests() ? std::pair(i, std::size_t{0}) : std::pair(step.kernel, before);
        act(step, counts[place]);
      }
    }
  };
  for_each([](const Profile::Step& step, Count& count) {
    ++count.steps;
    if (step.after_us) ++count.late;
  });
  for_each([](Profile::Step& step, const Count& count) {
    if (10 * count.late < 9 * count.steps) step.after_us.reset();
  });
}

}  // namespace

void ProfileRecorder::Add(const trace::Reader& names, const trace::Event& event) {
  if (const auto* const slice = std::get_if<trace::Slice>(&event)) {
    if (IsFull() || slice->has_failed) return;
    slices_.push_back(*slice);
    if (!kernels_.contains(slice->kernel)) kernels_[slice->kernel] = names.GetWhat(*slice);
  } else if (const auto* const request = std::get_if<trace::Request>(&event)) {
    if (requests_.size() < kRequestsMax) requests_.push_back(*request);
  }
}

void ProfileRecorder::Finish(TimePoint until) {
  until_ = until;
  runs_ = Runs();
  costs_ = Costs();
}

// On a device with a single executor, work that began later interrupted the work in progress. On
// other devices both ran concurrently, and the charges determine how the time is divided.
std::vector<ProfileRecorder::Run> ProfileRecorder::Runs() const {
  std::vector<std::size_t> order(slices_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return slices_[a].started < slices_[b].started; });
  std::vector<Run> runs(slices_.size());
  for (std::size_t i = 0; i < slices_.size(); ++i)
    runs[i].time = std::max(slices_[i].ended - slices_[i].started, Duration());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const trace::Slice& slice = slices_[order[i]];
    // End of the overlaps counted so far. Later work may overlap other later work, and no time is
    // counted twice.
    TimePoint counted = slice.started;
    for (std::size_t j = i + 1; j < order.size(); ++j) {
      const trace::Slice& later = slices_[order[j]];
      if (later.started >= slice.ended) break;
      if (later.session == slice.session) continue;
      const TimePoint until = std::min(slice.ended, later.ended);
      const Duration both = until - std::max(later.started, counted);
      if (both <= Duration()) continue;
      counted = until;
      Run& run = runs[order[i]];
      run.shared += both;
      if (multiprocessors_ == 1) run.time -= both;
      if (multiprocessors_ > 1) runs[order[j]].shared += both;
    }
  }
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    if (multiprocessors_ > 1 && runs[i].shared > Duration())
      runs[i].time = std::min(runs[i].time, slices_[i].charged);
    runs[i].time = std::max(runs[i].time, Duration());
  }
  return runs;
}

std::vector<ProfileRecorder::Command> ProfileRecorder::GetCommands(std::uint64_t session) const {
  std::vector<Command> commands;
  std::map<std::uint8_t, Command> parts;  // Unfinished parts of preempted commands, by stream.
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const trace::Slice& slice = slices_[i];
    if (slice.session != session) continue;
    const auto [part, is_first] = parts.try_emplace(slice.stream);
    Command& command = part->second;
    if (is_first) command.taken = TakenAt(slice);
    command.time += runs_[i].time;
    command.shared += std::min(runs_[i].shared, runs_[i].time);
    if (slice.is_part) continue;
    command.kernel = slice.kernel;
    command.request = slice.request;
    command.shape = slice.shape;
    command.work = slice.work;
    command.ended = slice.ended;
    if (command.taken >= from_) commands.push_back(command);
    parts.erase(part);
  }
  return commands;
}

std::size_t ProfileRecorder::KernelNumber(const Command& command, Profile& profile,
                                          std::map<std::string, std::size_t>& numbers) const {
  const std::string key = std::to_string(command.kernel) + "/" + std::to_string(command.shape) +
                          "/" + std::to_string(static_cast<unsigned>(command.work));
  const auto found = numbers.find(key);
  if (found != numbers.end()) return found->second;
  // Beyond the limit, the last kernel represents all further ones.
  if (profile.kernels.size() == simulation::kProfileKernelsMax) return profile.kernels.size() - 1;
  const auto name = kernels_.find(command.kernel);
  const bool is_named = command.work == trace::Work::kLaunch || command.work == trace::Work::kGraph;
  std::string shown = is_named && name != kernels_.end()
                          ? name->second
                          : std::string(trace::WorkText(command.work));
  profile.kernels.push_back({.name = std::move(shown), .work = GetWork(command.work)});
  return numbers[key] = profile.kernels.size() - 1;
}

void ProfileRecorder::FillRequests(const std::vector<Command>& commands,
                                   const std::vector<trace::Request>& requests,
                                   Profile& profile) const {
  std::map<std::uint64_t, std::vector<const Command*>> by_request;
  for (const Command& command : commands) by_request[command.request].push_back(&command);
  const Duration notice = Duration(static_cast<Duration::rep>(1e3 * costs_.notice_us));
  std::map<std::string, std::size_t> numbers;
  std::size_t steps = 0;
  TimePoint before = from_;  // End of the previous request.
  for (const trace::Request& request : requests) {
    const auto found = by_request.find(static_cast<std::uint32_t>(request.number));
    if (found == by_request.end()) continue;
    steps += found->second.size();
    if (steps > simulation::kProfileStepsMax ||
        profile.requests.size() == simulation::kProfileRequestsMax)
      return;
    Profile::Request row;
    const bool is_closed = profile.pace == Profile::Pace::kClosed;
    row.at_ms = is_closed ? Milliseconds(std::max(request.arrived - before, Duration()))
                          : Milliseconds(std::max(request.arrived - from_, Duration()));
    TimePoint since = request.arrived;
    if (profile.pace == Profile::Pace::kInTurn) since = std::max(since, before);
    before = request.ended;
    bool is_first = true;
    for (const Command* const command : found->second) {
      Profile::Step step{.kernel = KernelNumber(*command, profile, numbers),
                         .us = std::max(Microseconds(command->time), 0.001),
                         .after_us = {}};
      const Duration after = command->taken - since;
      if (is_first || after > kSameTime)
        step.after_us = Microseconds(std::max(is_first ? after : after - notice, Duration()));
      is_first = false;
      since = command->ended;
      row.steps.push_back(step);
    }
    profile.requests.push_back(std::move(row));
  }
}

void ProfileRecorder::FillEndless(const std::vector<Command>& commands, Profile& profile) const {
  const Duration notice = Duration(static_cast<Duration::rep>(1e3 * costs_.notice_us));
  std::map<std::string, std::size_t> numbers;
  Profile::Request all;
  TimePoint since = TimePoint::max();
  for (const Command& command : commands) {
    if (all.steps.size() == simulation::kProfileStepsMax) break;
    Profile::Step step{.kernel = KernelNumber(command, profile, numbers),
                       .us = std::max(Microseconds(command.time), 0.001),
                       .after_us = {}};
    if (command.taken > since + kSameTime)
      step.after_us = Microseconds(std::max(command.taken - since - notice, Duration()));
    since = command.ended;
    all.steps.push_back(step);
  }
  // The sequence waits before it repeats if most of its steps wait.
  const auto waits = std::count_if(all.steps.begin(), all.steps.end(),
                                   [](const Profile::Step& step) { return step.after_us; });
  if (2 * static_cast<std::size_t>(waits) > all.steps.size() && !all.steps.front().after_us)
    all.steps.front().after_us = 0;
  profile.requests.push_back(std::move(all));
}

Result<Profile> ProfileRecorder::GetProfile(std::uint64_t session) const {
  const std::vector<Command> commands = GetCommands(session);
  if (commands.empty()) {
    return Status(StatusCode::kNotReady,
                  "client " + std::to_string(session) +
                      " ran nothing during the recording: record for longer, or while "
                      "it has work");
  }
  std::vector<trace::Request> requests;
  for (const trace::Request& request : requests_) {
    if (request.session == session && request.begun >= from_ && !request.has_failed)
      requests.push_back(request);
  }
  std::stable_sort(requests.begin(), requests.end(),
                   [](const auto& a, const auto& b) { return a.arrived < b.arrived; });
  Profile profile;
  if (!requests.empty()) {
    profile.pace = GetPace(requests);
    FillRequests(commands, requests, profile);
  }
  if (profile.requests.empty()) {
    profile.pace = Profile::Pace::kEndless;
    FillEndless(commands, profile);
  }
  KeepUsualWaits(profile);
  Duration time{}, shared{};
  std::set<std::uint8_t> streams;
  for (const Command& command : commands) {
    time += command.time;
    shared += command.shared;
  }
  for (const trace::Slice& slice : slices_) {
    if (slice.session == session) streams.insert(slice.stream);
  }
  profile.seen = {
      .seconds = Milliseconds(until_ - from_) / 1e3,
      .shared_percent = time > Duration() ? 100 * Milliseconds(shared) / Milliseconds(time) : 0,
      .lost = lost_,
      .streams = static_cast<std::uint32_t>(streams.size())};
  return profile;
}

Node::Costs ProfileRecorder::Costs() const {
  const std::vector<const trace::Slice*> order = SortedBy(&trace::Slice::submitted);
  std::vector<Duration> launches, notices, stops;
  TimePoint busy_until{};  // Latest end of the commands submitted so far.
  for (std::size_t i = 0; i < order.size(); ++i) {
    const trace::Slice& slice = *order[i];
    if (slice.cut == trace::Cut::kStopped && slice.ended >= slice.stop_asked)
      stops.push_back(slice.ended - slice.stop_asked);
    const bool was_idle = slice.submitted >= busy_until;
    busy_until = std::max({busy_until, slice.ended, slice.submitted});
    if (!was_idle) continue;
    bool was_overtaken = false, was_alone = true;
    for (std::size_t j = i + 1; j < order.size() && order[j]->submitted < slice.ended; ++j) {
      was_overtaken = was_overtaken || order[j]->started < slice.started;
      was_alone = false;
    }
    if (!was_overtaken) launches.push_back(slice.started - slice.submitted);
    if (was_alone && !slice.is_part && KnownAt(slice) >= slice.ended)
      notices.push_back(KnownAt(slice) - slice.ended);
  }
  std::vector<Duration> gaps = Gaps();
  Node::Costs costs;
  costs.samples = std::min(launches.size(), notices.size());
  costs.stops = stops.size();
  costs.launches_us = QuantilesUs(launches);
  costs.gaps_us = QuantilesUs(gaps);
  costs.notices_us = QuantilesUs(notices);
  costs.launch_us = MedianUs(std::move(launches)).value_or(costs.launch_us);
  costs.notice_us = MedianUs(std::move(notices)).value_or(costs.notice_us);
  costs.gap_us = MedianUs(std::move(gaps)).value_or(costs.gap_us);
  costs.stop_us = MedianUs(std::move(stops)).value_or(costs.stop_us);
  return costs;
}

std::vector<const trace::Slice*> ProfileRecorder::SortedBy(TimePoint trace::Slice::*time) const {
  std::vector<const trace::Slice*> order;
  for (const trace::Slice& slice : slices_) order.push_back(&slice);
  std::stable_sort(
      order.begin(), order.end(),
      [time](const trace::Slice* a, const trace::Slice* b) { return a->*time < b->*time; });
  return order;
}

// A higher class may run between two kernels of a stream. Because that time is not a cost of the
// device, only kernels that began directly one after the other are counted.
std::vector<Duration> ProfileRecorder::Gaps() const {
  const std::vector<const trace::Slice*> order = SortedBy(&trace::Slice::started);
  std::vector<Duration> gaps;
  for (std::size_t i = 1; i < order.size(); ++i) {
    const trace::Slice& before = *order[i - 1];
    const trace::Slice& slice = *order[i];
    const bool follows = before.session == slice.session && before.stream == slice.stream &&
                         slice.submitted < before.ended && slice.started >= before.ended;
    if (follows && !before.is_part) gaps.push_back(slice.started - before.ended);
  }
  return gaps;
}

// The pauses of a client that waits for its requests vary less than the intervals between arrivals,
// because the latter include the duration of the requests. For external arrivals the opposite
// holds.
Profile::Pace GetPace(const std::vector<trace::Request>& requests) {
  // Maximum variance of the pauses of a loop, relative to the variance of the intervals.
  constexpr double kDiffer = 0.95;
  // Maximum pause of a loop, relative to the duration of its requests.
  constexpr double kBackToBack = 0.05;
  bool are_open_together = false, waited = false;
  std::vector<double> pauses, distances;
  double busy = 0;
  TimePoint ended{}, arrived{};
  for (const trace::Request& request : requests) {
    if (ended != TimePoint()) {
      are_open_together = are_open_together || request.begun + kSameTime < ended;
      waited = waited || request.arrived + kSameTime < ended;
      pauses.push_back(Milliseconds(request.arrived - ended));
      distances.push_back(Milliseconds(request.arrived - arrived));
    }
    busy += Milliseconds(request.ended - request.arrived);
    ended = std::max(ended, request.ended);
    arrived = request.arrived;
  }
  if (are_open_together) return Profile::Pace::kOpen;
  if (waited || pauses.size() < 2) return Profile::Pace::kInTurn;
  const bool is_loop = Variance(pauses) < kDiffer * Variance(distances) ||
                       std::accumulate(pauses.begin(), pauses.end(), 0.0) < kBackToBack * busy;
  return is_loop ? Profile::Pace::kClosed : Profile::Pace::kInTurn;
}

}  // namespace gpushared::server
