// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/storms/experiment.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/hostile/storms/clients.h"
#include "tests/hostile/storms/log_minute.h"
#include "tests/hostile/storms/processes.h"

namespace gpushared::storms {
namespace {

using namespace std::chrono_literals;

// All slices of a run are equally long, because a longer slice would contain rarer, worse requests.
constexpr int kSlicesPerHalf = 3;
constexpr std::uint64_t kLogTailBytes = 800;
constexpr double kControlCoresMin = 0.02;
// kCatchUpPatience: limit for operations begun in a storm to end after it. kSettlePatience: limit
// for the server to free the storm's resources.
constexpr std::chrono::seconds kCatchUpPatience{15}, kSettlePatience{10};
constexpr std::chrono::seconds kReadyPatience{60};
constexpr std::chrono::duration<double> kCalmLeast{0.2};
constexpr std::chrono::milliseconds kCheckKill{100};
// User numbers that are not used otherwise.
constexpr uid_t kNewClientUser = 41000, kNeighbourUser = 41001, kFirstAttackerUser = 42000;

double Quantile(const std::vector<double>& sorted, double fraction) {
  if (sorted.empty()) return 0;
  const double place = std::ceil(fraction * static_cast<double>(sorted.size())) - 1;
  return sorted[static_cast<std::size_t>(std::max(0.0, place))];
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

bool Contains(const Span& span, std::int64_t time_ns) {
  return time_ns >= span.begin_ns && time_ns < span.end_ns;
}

// Returns the latencies of operations that began in any of these spans, as of now.
Latencies Began(const SampleLog& log, const std::vector<Span>& spans) {
  std::vector<double> took;
  std::size_t unfinished = 0, rejected = 0;
  const std::int64_t now = NowNs();
  for (std::size_t i = 0; i < log.size(); ++i) {
    const std::int64_t began = log[i].began_ns, length = log[i].took_ns;
    if (began == 0 || std::ranges::none_of(spans, [&](auto& s) { return Contains(s, began); }))
      continue;
    rejected += length == Sample::kRejected;
    unfinished += length == 0;
    if (length != Sample::kRejected)
      took.push_back(static_cast<double>(length == 0 ? now - began : length));
  }
  Latencies latencies = GetLatencies(std::move(took));
  latencies.unfinished = unfinished;
  latencies.rejected = rejected;
  return latencies;
}

// Returns the latencies of the honest client's requests that arrived in these spans, including
// arrivals that the client has not noticed yet.
Latencies Arrived(const Board& board, const std::vector<Span>& spans) {
  std::vector<double> took;
  std::size_t unfinished = 0;
  const std::int64_t first = board.first_arrival_ns, now = NowNs();
  for (std::size_t i = 0; ArrivalNs(first, i) < spans.back().end_ns; ++i) {
    const std::int64_t arrival = ArrivalNs(first, i);
    if (std::ranges::none_of(spans, [&](auto& s) { return Contains(s, arrival); })) continue;
    const std::int64_t length = i < board.requests.size() ? board.requests[i].took_ns.load() : 0;
    unfinished += length == 0;
    took.push_back(static_cast<double>(length == 0 ? now - arrival : length));
  }
  Latencies latencies = GetLatencies(std::move(took));
  latencies.unfinished = unfinished;
  return latencies;
}

std::vector<Span> GetSlices(const Span& span, int count) {
  std::vector<Span> slices;
  const std::int64_t length = (span.end_ns - span.begin_ns) / count;
  for (int i = 0; i < count; ++i)
    slices.push_back({span.begin_ns + i * length, span.begin_ns + (i + 1) * length});
  return slices;
}

double MedianOfSlices(const Board& board, const std::vector<Span>& slices,
                      double Latencies::*quantile) {
  std::vector<double> values;
  for (const Span& slice : slices) values.push_back(Arrived(board, {slice}).*quantile);
  return Median(std::move(values));
}

void Write(std::ofstream& file, const char* what, const SampleLog& log) {
  for (std::size_t i = 0; i < log.size(); ++i)
    file << what << ',' << log[i].began_ns << ',' << log[i].took_ns << '\n';
}

// Writes all samples with their times on the steady clock.
void WriteSamples(const std::string& path, const Board& board,
                  const std::vector<std::pair<const char*, Span>>& spans) {
  std::ofstream file(path);
  file << "what,began_ns,took_ns\n";
  for (const auto& [what, span] : spans)
    file << what << ',' << span.begin_ns << ',' << span.end_ns - span.begin_ns << '\n';
  Write(file, "request", board.requests);
  Write(file, "welcome", board.welcomes);
  Write(file, "load", board.loads);
  Write(file, "result", board.results);
  file.close();
  if (!file) throw std::runtime_error("no samples can be written to " + path);
}

std::string Text(const FirstWords& words) { return words.text.data(); }

// One run of a storm. The parts are called in the order in which they are declared.
class Experiment {
 public:
  Experiment(const Storm& storm, const StormPlan& plan)
      : storm_(storm), plan_(plan), server_(plan.server, Arguments(), plan.memory_limit_bytes) {
    outcome_.name = storm.name;
    outcome_.what = storm.what;
  }

  StormOutcome Run() {
    if (storm_.prepare != nullptr) storm_.prepare();
    StartClients();
    const auto half = std::chrono::duration<double>(plan_.seconds / 2);
    const auto calm = plan_.compares_times ? half : kCalmLeast;
    StartNeighbour();
    const Span first = Watch(calm);
    neighbour_.End();
    AwaitCatchUp(NowNs());
    outcome_.before = server_.Measure();
    const pid_t worker = server_.Worker();
    CheckLog();
    StartAttackers();
    const Span storm = WatchStorm(2 * half);
    WatchLog();
    attackers_.End();
    outcome_.log_bytes_per_minute = log_.Bytes();
    AwaitCatchUp(NowNs());
    EvaluateStorm(storm);
    StartNeighbour();
    const Span control = HasControl() ? WatchControl(2 * half) : Span{};
    const Span second = Watch(calm);
    neighbour_.End();
    outcome_.worker_ended = server_.Worker() != worker;
    outcome_.broker_ended = !server_.IsBrokerAlive();
    EvaluateRatios(storm, control, {first, second});
    if (!plan_.samples_directory.empty()) {
      WriteSamples(plan_.samples_directory + "/" + storm_.name + ".csv", *board_,
                   {{"alone", first}, {"storm", storm}, {"control", control}, {"alone", second}});
    }
    EndClients();
    AwaitGivenBack();
    return std::move(outcome_);
  }

 private:
  std::vector<std::string> Arguments() const {
    std::vector<std::string> arguments = {"--policy",    storm_.policy,      "--memory",
                                          kDeviceMemory, "--staging-memory", storm_.staging_memory};
    arguments.insert(arguments.end(), plan_.arguments.begin(), plan_.arguments.end());
    return arguments;
  }

  void StartClients() {
    const ClientPlan honest = {server_.socket(), storm_.honest_class};
    honest_.Start({}, [&] { BeHonest(honest, *board_); });
    const auto end = std::chrono::steady_clock::now() + kReadyPatience;
    while (board_->first_arrival_ns == 0) {
      if (std::chrono::steady_clock::now() > end)
        throw std::runtime_error("the honest client does not start: " + Text(board_->honest_words));
      std::this_thread::sleep_for(10ms);
    }
    const bool privileged = storm_.new_clients_are_privileged;
    const ClientPlan new_client = {server_.socket(),
                                   privileged ? SchedulingClass::kHigh : SchedulingClass::kNormal};
    new_clients_.Start(privileged ? std::optional<uid_t>() : kNewClientUser,
                       [&] { SendNewClients(new_client, *board_); });
  }

  void StartAttackers() {
    for (std::uint32_t number = 0; number < storm_.processes; ++number) {
      attackers_.Start(kFirstAttackerUser + number / storm_.processes_per_user, [this, number] {
        storm_.attack({.socket = server_.socket(), .number = number, .board = *board_});
      });
    }
  }

  void StartNeighbour() {
    if (storm_.neighbour == nullptr) return;
    neighbour_.Start(kNeighbourUser, [this] {
      storm_.neighbour({.socket = server_.socket(), .number = 0, .board = *aside_});
    });
  }

  // Waits, and measures the server's resources as often as in the storm, because measuring occupies
  // the cores, too.
  Span Watch(std::chrono::duration<double> length) const {
    const std::int64_t now = NowNs();
    const Span span{now, now + static_cast<std::int64_t>(length.count() * 1e9)};
    while (NowNs() < span.end_ns) {
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(
          kCheckKill, std::chrono::nanoseconds(span.end_ns - NowNs())));
      (void)server_.Measure();
    }
    return span;
  }

  // Returns whether a control is needed. None is needed if the attackers used little processor
  // time, or for the storm of busy processes, which would be its own control.
  bool HasControl() const {
    return plan_.compares_times && outcome_.attackers_cores >= kControlCoresMin &&
           storm_.attack != &TakeCores;
  }

  // Runs the control: as many processes as there were attackers use as much processor time, but
  // send nothing to the server.
  Span WatchControl(std::chrono::duration<double> length) {
    const double part = std::min(1.0, outcome_.attackers_cores / storm_.processes);
    for (std::uint32_t number = 0; number < storm_.processes; ++number) {
      attackers_.Start(
          kFirstAttackerUser + number / storm_.processes_per_user, [this, number, part] {
            TakePartOfCore({.socket = server_.socket(), .number = number, .board = *aside_}, part);
          });
    }
    const Span control = Watch(length);
    attackers_.End();
    AwaitCatchUp(NowNs());
    return control;
  }

  // Measures the storm. Ends it early if the server's memory or log exceeds its limit.
  Span WatchStorm(std::chrono::duration<double> length) {
    Span span{NowNs(), 0};
    const auto end_ns = span.begin_ns + static_cast<std::int64_t>(length.count() * 1e9);
    const std::int64_t last_ns = end_ns + std::chrono::nanoseconds(kDeedsPatience).count();
    const auto is_over = [&] {
      const std::int64_t now = NowNs();
      return now >= end_ns && (board_->deeds >= plan_.deeds_least || now >= last_ns);
    };
    while (!is_over() && !outcome_.was_cut_short) {
      std::this_thread::sleep_for(kCheckKill);
      CheckLog();
      const std::uint64_t bytes = server_.Measure().Bytes();
      outcome_.most_bytes = std::max(outcome_.most_bytes, bytes);
      // A cgroup limit is enforced by the kernel; twice the limit is for machines without cgroups.
      outcome_.was_cut_short =
          bytes > 2 * plan_.memory_limit_bytes || server_.LogBytes() > plan_.log_limit_bytes;
    }
    span.end_ns = NowNs();
    outcome_.seconds = static_cast<double>(span.end_ns - span.begin_ns) / 1e9;
    outcome_.attackers_cores =
        std::chrono::duration<double>(attackers_.ProcessorTime()).count() / outcome_.seconds;
    return span;
  }

  void CheckLog() { log_.Add(NowNs(), server_.LogBytes()); }

  // Continues the storm until its log's growth is known to meet the goal, or a minute has been
  // recorded.
  void WatchLog() {
    while (log_.Bytes() > kLogBytesPerMinuteMax && !log_.is_whole() && !outcome_.was_cut_short) {
      std::this_thread::sleep_for(kCheckKill);
      CheckLog();
    }
  }

  // Waits until the honest client has answered all earlier arrivals, or has stopped making
  // progress.
  void AwaitCatchUp(std::int64_t until_ns) const {
    const auto end = std::chrono::steady_clock::now() + kCatchUpPatience;
    while (std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(kCheckKill);
      if (Arrived(*board_, {{0, until_ns}}).unfinished == 0) return;
    }
  }

  void EvaluateStorm(const Span& storm) {
    outcome_.honest = Arrived(*board_, {storm});
    outcome_.welcome = Began(board_->welcomes, {storm});
    outcome_.load = Began(board_->loads, {storm});
    outcome_.result = Began(board_->results, {storm});
    outcome_.new_clients_left_out = board_->new_clients_left_out;
    outcome_.deeds = board_->deeds;
    outcome_.rejected_deeds = board_->rejected_deeds;
  }

  // `control` is empty if no control was run.
  void EvaluateRatios(const Span& storm, const Span& control, const std::vector<Span>& alone) {
    std::vector<Span> alone_slices;
    for (const Span& span : alone) {
      for (const Span& slice : GetSlices(span, kSlicesPerHalf)) alone_slices.push_back(slice);
    }
    const auto ratio = [&](const Span& span, double Latencies::*quantile) {
      const double base = MedianOfSlices(*board_, alone_slices, quantile);
      const std::vector<Span> slices = GetSlices(span, 2 * kSlicesPerHalf);
      return base == 0 ? 0 : MedianOfSlices(*board_, slices, quantile) / base;
    };
    outcome_.p50_ratio = ratio(storm, &Latencies::p50);
    outcome_.p99_ratio = ratio(storm, &Latencies::p99);
    outcome_.honest_alone = Arrived(*board_, alone);
    outcome_.welcome_alone = Began(board_->welcomes, alone);
    outcome_.load_alone = Began(board_->loads, alone);
    if (control.end_ns != 0) {
      outcome_.control_p99_ratio = ratio(control, &Latencies::p99);
      outcome_.control = Arrived(*board_, {control});
      outcome_.control_welcome = Began(board_->welcomes, {control});
      outcome_.control_load = Began(board_->loads, {control});
    }
    outcome_.wrong_results = board_->wrong_results;
    outcome_.reconnects = board_->reconnects;
    outcome_.memory_kills = server_.cage().Kills();
    outcome_.not_caged = server_.cage().rejection();
    outcome_.honest_words = Text(board_->honest_words);
    outcome_.new_client_words = Text(board_->new_client_words);
    outcome_.attacker_words = Text(board_->attacker_words);
    outcome_.log_tail = server_.LogTail(kLogTailBytes);
  }

  void EndClients() {
    new_clients_.End();
    honest_.End();
  }

  // Waits until the server holds no more resources than it did without clients, because everything
  // that it allocated during the storm must be freed afterwards.
  void AwaitGivenBack() {
    const auto end = std::chrono::steady_clock::now() + kSettlePatience;
    do {
      std::this_thread::sleep_for(kCheckKill);
      outcome_.after = server_.Measure();
    } while (!IsGivenBack() && std::chrono::steady_clock::now() < end);
  }

  bool IsGivenBack() const {
    const Holdings &held = outcome_.before, &left = outcome_.after;
    return left.Descriptors() <= held.Descriptors() && left.Bytes() <= held.Bytes();
  }

  const Storm& storm_;
  const StormPlan& plan_;
  StormOutcome outcome_;
  Shared<Board> board_, aside_;  // `aside_`: for the control and the neighbour; not evaluated.
  ServerUnderTest server_;
  LogMinute log_;
  Processes honest_, new_clients_, neighbour_, attackers_;
};

}  // namespace

Latencies GetLatencies(std::vector<double> took_ns) {
  std::ranges::sort(took_ns);
  return {.p50 = Quantile(took_ns, 0.5),
          .p99 = Quantile(took_ns, 0.99),
          .p999 = Quantile(took_ns, 0.999),
          .worst = took_ns.empty() ? 0 : took_ns.back(),
          .count = took_ns.size()};
}

std::string StormOutcome::Broken() const {
  if (!broken_before.empty()) return broken_before;
  std::string text;
  const auto add = [&](bool is_broken, const std::string& how) {
    if (is_broken) text += (text.empty() ? "" : ", ") + how;
  };
  add(broker_ended, "the broker ended");
  add(worker_ended, "the worker ended");
  add(memory_kills > 0, "killed for memory");
  add(was_cut_short, "cut short: memory or log beyond the limit");
  add(wrong_results > 0, std::to_string(wrong_results) + " wrong results");
  add(reconnects > 0, "the honest client failed " + std::to_string(reconnects) + " times");
  add(honest.count == honest.unfinished, "no request was answered");
  add(result.count == result.unfinished, "no new client was served");
  const std::uint64_t held = before.Descriptors(), left = after.Descriptors();
  add(left > held + kDescriptorsLeftMax, std::to_string(left - held) + " descriptors left");
  return text;
}

std::string StormOutcome::Missed() const {
  std::string text;
  const auto add = [&](bool is_missed, const char* goal) {
    if (is_missed) text += (text.empty() ? "" : " ") + std::string(goal);
  };
  // A goal is in brackets if the control misses it by as much, because then the server is not the
  // cause.
  add(p99_ratio > kHonestRatioMax, control_p99_ratio >= p99_ratio ? "(p99)" : "p99");
  add(welcome.p99 > kWelcomeP99MaxNs, control_welcome.p99 >= welcome.p99 ? "(welcome)" : "welcome");
  add(load.p99 > kLoadP99MaxNs, control_load.p99 >= load.p99 ? "(load)" : "load");
  add(result.rejected > 0, "rejections");
  add(log_bytes_per_minute > kLogBytesPerMinuteMax, "log");
  return text;
}

StormOutcome RunStorm(const Storm& storm, const StormPlan& plan) {
  return Experiment(storm, plan).Run();
}

}  // namespace gpushared::storms
