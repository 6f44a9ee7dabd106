// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/run.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <utility>

namespace gpushared::simulation {
namespace {

using scheduler::Duration;
using scheduler::TimePoint;
using Pace = ClientPlan::Pace;

// The low bits of a launch's number are the number of its client.
constexpr std::uint64_t kClientBits = 8;
static_assert(scheduler::kClientsMax <= std::uint64_t{1} << kClientBits);

TimePoint At(double seconds) {
  return TimePoint(Duration(static_cast<Duration::rep>(seconds * 1e9)));
}

class Run {
 public:
  Run(const SetupEntry& setup, const FrontOptions& options, const Scenario& scenario)
      : scenario_(scenario),
        multiprocessors_(options.multiprocessors),
        device_(setup.make_device(options, scenario.clients.size())),
        front_(setup.make_front(*device_, options)) {
    for (const ClientPlan& plan : scenario.clients) clients_.push_back({.plan = &plan});
    outcome_.clients.resize(clients_.size());
    due_.resize(clients_.size());
  }

  Outcome Go() {
    for (std::size_t number = 0; number < clients_.size(); ++number) {
      Client& client = clients_[number];
      front_->AddClient(client.plan->spec, now_);
      if (client.plan->max_share) front_->LimitClient(number, *client.plan->max_share, now_);
      outcome_.clients[number].request_times.reserve(client.plan->times_s.size());
      if (!client.plan->times_s.empty()) ++unfinished_;
      ScheduleNext(client);
    }
    do {
      Arrive();
      TakeSteps();
      finished_.clear();
      device_->Advance(now_, finished_);
      for (const Finished& finished : finished_) OnFinished(finished);
      front_->Act(now_);
    } while (GoOn());
    outcome_.seconds = std::chrono::duration<double>(now_.time_since_epoch()).count();
    for (std::size_t number = 0; number < clients_.size(); ++number) {
      const Client& client = clients_[number];
      outcome_.clients[number].jobs = GetJobs(client);
      outcome_.clients[number].charged = front_->charged(number);
    }
    CountGap();
    outcome_.decisions = front_->decisions();
    return std::move(outcome_);
  }

 private:
  struct Request {
    std::uint64_t number = 0;
    TimePoint arrival;
    const Job* job = nullptr;
    std::size_t enqueued = 0, done = 0;  // Numbers of the request's kernels.
    TimePoint since{};  // Start of the request, or the end of its last completed kernel.
  };
  struct Client {
    const ClientPlan* plan = nullptr;
    std::size_t begun = 0;  // Number of consumed elements of plan->times_s, or of plan->awake.
    std::optional<TimePoint> next{};  // Time of the next arrival, or of the end of sleep.
    std::deque<Request> open{};       // Open requests or steps.
    std::uint64_t jobs = 0;
    std::uint64_t jobs_done = 0;
    std::uint64_t launches = 0;
    // Time at which the client submits its next kernel; empty if that kernel waits for an earlier
    // one to end, or if there is none.
    std::optional<TimePoint> step{};
    Duration work{};
    bool is_active = false;  // Whether the client has something open.
  };

  // Advances to the next event; returns false at the end of the scenario.
  bool GoOn() {
    if (scenario_.length == Duration() && unfinished_ == 0) return false;
    std::optional<TimePoint> next = device_->next_event();
    const auto consider = [&](std::optional<TimePoint> at) {
      if (at) next = next ? std::min(*next, *at) : at;
    };
    consider(front_->wake_at());
    consider(next_arrival_);
    consider(next_step_);
    const TimePoint end(scenario_.length);
    if (scenario_.length > Duration()) consider(end);
    if (!next) throw std::logic_error("requests are open, but no event is left");
    const TimePoint to = std::max(*next, now_);
    if (scenario_.sample_every > Duration()) SampleUpTo(to);
    now_ = to;
    return scenario_.length == Duration() || now_ < end;
  }

  void ScheduleNext(Client& client) {
    const ClientPlan& plan = *client.plan;
    client.next.reset();
    if (plan.pace == Pace::kEndless) {
      if (plan.awake.empty()) {
        if (client.jobs == 0) client.next = now_;
      } else if (client.begun < plan.awake.size()) {
        client.next = std::max(At(plan.awake[client.begun].from_s), now_);
      }
    } else if (client.begun < plan.times_s.size()) {
      const double time_s = plan.times_s[client.begun];
      if (plan.pace == Pace::kOpen) {
        client.next = At(time_s);
      } else if (client.open.empty()) {
        client.next = plan.pace == Pace::kClosed ? now_ + At(time_s).time_since_epoch()
                                                 : std::max(At(time_s), now_);
      }
    }
    next_arrival_ = Soonest(&Client::next);
  }

  std::optional<TimePoint> Soonest(std::optional<TimePoint> Client::*of) const {
    std::optional<TimePoint> soonest;
    for (const Client& each : clients_) {
      if (each.*of) soonest = std::min(soonest.value_or(*(each.*of)), *(each.*of));
    }
    return soonest;
  }

  void Arrive() {
    while (next_arrival_ && *next_arrival_ <= now_) {
      for (std::size_t number = 0; number < clients_.size(); ++number) {
        Client& client = clients_[number];
        if (!client.next || *client.next > now_) continue;
        const bool waited_in_client = client.plan->pace == Pace::kInTurn;
        const TimePoint arrival =
            waited_in_client ? At(client.plan->times_s[client.begun]) : *client.next;
        ++client.begun;
        if (client.plan->pace == Pace::kEndless) {
          Refill(number);
        } else {
          Begin(number, arrival);
        }
        ScheduleNext(client);
      }
    }
  }

  bool IsAwake(const Client& client) const {
    const std::vector<ClientPlan::Span>& awake = client.plan->awake;
    return awake.empty() || (client.begun > 0 && now_ < At(awake[client.begun - 1].until_s));
  }

  void Refill(std::size_t number) {
    while (IsAwake(clients_[number]) && clients_[number].open.size() < clients_[number].plan->depth)
      Begin(number, now_);
  }

  void Begin(std::size_t number, TimePoint arrival) {
    Client& client = clients_[number];
    if (!client.is_active) SetActive(number, true);
    const std::vector<Job>& jobs = client.plan->jobs;
    const Job& job = jobs.empty() ? client.plan->job : jobs[client.jobs % jobs.size()];
    client.open.push_back(
        {.number = client.jobs++, .arrival = arrival, .job = &job, .since = now_});
    if (client.plan->pace != Pace::kEndless)
      front_->OnRequestBegan(number, client.open.back().number, arrival, now_);
    Submit(number);
  }

  // Submits kernels in order, up to the first one whose time has not come.
  void Submit(std::size_t number) {
    Client& client = clients_[number];
    const bool had_step = client.step.has_value();
    client.step.reset();
    // Skips requests whose kernels are all queued.
    const auto first = std::ranges::partition_point(
        client.open, [](const Request& each) { return each.enqueued == each.job->kernels.size(); });
    for (Request& request : std::ranges::subrange(first, client.open.end())) {
      for (; request.enqueued < request.job->kernels.size(); ++request.enqueued) {
        const Kernel& kernel = request.job->kernels[request.enqueued];
        if (kernel.after) {
          if (request.done < request.enqueued) break;
          if (const TimePoint at = request.since + *kernel.after; at > now_) {
            client.step = at;
            break;
          }
        }
        const std::uint64_t id = (++client.launches << kClientBits) | number;
        front_->Enqueue({.id = id, .client = number, .kernel = kernel}, now_);
        ++outcome_.launches;
      }
      if (request.enqueued < request.job->kernels.size()) break;
    }
    if (had_step || client.step) next_step_ = Soonest(&Client::step);
  }

  void TakeSteps() {
    while (next_step_ && *next_step_ <= now_) {
      for (std::size_t number = 0; number < clients_.size(); ++number) {
        if (clients_[number].step && *clients_[number].step <= now_) Submit(number);
      }
    }
  }

  void OnFinished(const Finished& finished) {
    if (!front_->OnFinished(finished, now_)) return;
    const std::size_t number = finished.id & ((std::uint64_t{1} << kClientBits) - 1);
    Client& client = clients_[number];
    Request& first = client.open.front();
    client.work += SoloTime(first.job->kernels[first.done], multiprocessors_);
    first.since = now_;
    if (++first.done < first.job->kernels.size()) {
      if (first.enqueued == first.done) Submit(number);
      return;
    }
    const Request request = first;
    ++client.jobs_done;
    client.open.pop_front();
    if (client.plan->pace == Pace::kEndless) {
      Refill(number);
    } else {
      std::vector<Duration>& times = outcome_.clients[number].request_times;
      times.push_back(now_ - request.arrival);
      if (times.size() == client.plan->times_s.size()) --unfinished_;
      front_->OnRequestEnded(number, request.number, now_);
      if (client.plan->pace != Pace::kOpen) ScheduleNext(client);
    }
    if (client.open.empty()) SetActive(number, false);
  }

  // Returns the number of completed jobs, plus the completed fraction of the first open one.
  static double GetJobs(const Client& client) {
    const auto whole = static_cast<double>(client.jobs_done);
    if (client.open.empty()) return whole;
    const Request& first = client.open.front();
    return whole + static_cast<double>(first.done) / static_cast<double>(first.job->kernels.size());
  }

  void CountGap() {
    if (high_active_ == 0) outcome_.gap += now_ - gap_since_;
    gap_since_ = now_;
  }

  void SetActive(std::size_t number, bool is_active) {
    AccrueDue(now_);
    CountGap();
    if (clients_[number].plan->spec.scheduling_class == scheduler::SchedulingClass::kHigh)
      is_active ? ++high_active_ : --high_active_;
    clients_[number].is_active = is_active;
    const std::uint32_t weight = clients_[number].plan->spec.weight;
    is_active ? active_weight_ += weight : active_weight_ -= weight;
  }

  void AccrueDue(TimePoint now) {
    const Duration span = now - accrued_until_;
    accrued_until_ = now;
    if (span == Duration() || active_weight_ == 0 || scenario_.sample_every == Duration()) return;
    const double per_weight =
        static_cast<double>(span.count()) / static_cast<double>(active_weight_);
    for (std::size_t number = 0; number < clients_.size(); ++number) {
      if (clients_[number].is_active)
        due_[number] += per_weight * clients_[number].plan->spec.weight;
    }
  }

  void SampleUpTo(TimePoint to) {
    for (; next_sample_ <= to; next_sample_ += scenario_.sample_every) {
      if (next_sample_ == TimePoint()) continue;
      AccrueDue(next_sample_);
      ShareSample sample;
      for (std::size_t number = 0; number < clients_.size(); ++number) {
        sample.held.push_back(front_->charged(number).value_or(clients_[number].work));
        sample.due.emplace_back(static_cast<Duration::rep>(due_[number]));
      }
      outcome_.samples.push_back(std::move(sample));
    }
  }

  const Scenario& scenario_;
  const std::uint32_t multiprocessors_;
  const std::unique_ptr<GpuDevice> device_;
  const std::unique_ptr<Front> front_;

  TimePoint now_{};
  std::vector<Client> clients_;
  std::optional<TimePoint> next_arrival_;  // Earliest arrival over all clients.
  // Earliest time over all clients at which a kernel is submitted.
  std::optional<TimePoint> next_step_;
  std::size_t unfinished_ = 0;  // Clients with future or open requests.
  std::vector<Finished> finished_;
  std::uint64_t active_weight_ = 0;  // Sum over clients with work.
  TimePoint accrued_until_{}, next_sample_{};
  std::vector<double> due_;  // Device time due to each client, in ns.
  std::size_t high_active_ = 0;
  TimePoint gap_since_{};
  Outcome outcome_;
};

}  // namespace

Outcome RunScenario(const SetupEntry& setup, const FrontOptions& options,
                    const Scenario& scenario) {
  return Run(setup, options, scenario).Go();
}

}  // namespace gpushared::simulation
