// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/lane_front.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gpushared::simulation {
namespace {

scheduler::ClientId IdOf(std::size_t number) { return {number + 1}; }

}  // namespace

LaneFront::LaneFront(GpuDevice& device, std::unique_ptr<scheduler::Policy> policy,
                     const FrontOptions& options)
    : device_(device), options_(options), lane_(std::move(policy), options.lane) {
  const GpuCosts& costs = options_.costs;
  const Duration turnaround = costs.notice + costs.launch_call + costs.launch_delay;
  lane_.SetTurnaround(options_.turnaround.value_or(turnaround));
}

void LaneFront::AddClient(const scheduler::ClientSpec& spec, TimePoint now) {
  lane_.AddClient(IdOf(clients_.size()), spec, now);
  clients_.push_back({.scheduling_class = spec.scheduling_class, .waiting = {}, .unmarked = {}});
}

void LaneFront::LimitClient(std::size_t number, std::uint32_t per_mille, TimePoint now) {
  const std::array caps{scheduler::ShareCap{.number = number, .per_mille = per_mille}};
  lane_.LimitClient(IdOf(number), caps, now);
}

LaneFront::Duration LaneFront::Predicted(const Kernel& kernel) const {
  return kernel.cost_key == 0 ? SoloTime(kernel, options_.multiprocessors)
                              : predictor_.Predict(kernel.cost_key);
}

bool LaneFront::IsStoppable(const Client& client, const Kernel& kernel) const {
  return (IsCopy(kernel) || (options_.claims && !kernel.is_uncut)) &&
         client.scheduling_class != scheduler::SchedulingClass::kHigh &&
         Predicted(kernel) >= options_.stop_least;
}

scheduler::LaneCommand LaneFront::CommandFor(const Known& known) const {
  Kernel left = known.launch.kernel;
  Duration predicted;
  if (left.cost_key != 0) {
    predicted = scheduler::Predictor::Remaining(Predicted(left), known.blocks_done, left.blocks);
  } else {
    left.blocks -= known.blocks_done;
    if (known.stoppable && !IsCopy(left)) left.block_time += options_.costs.claim;
    predicted = SoloTime(left, options_.multiprocessors) + options_.costs.kernel_gap;
  }
  return {.command = known.launch.id, .predicted = predicted, .stoppable = known.stoppable};
}

void LaneFront::Enqueue(const Launch& launch, TimePoint now) {
  clients_[launch.client].waiting.push_back(launch);
  Feed(launch.client, now);
}

void LaneFront::Feed(std::size_t number, TimePoint now) {
  Client& client = clients_[number];
  while (!client.is_blocked && !client.waiting.empty()) {
    const Launch launch = client.waiting.front();
    client.waiting.pop_front();
    const Known known{launch, IsStoppable(client, launch.kernel)};
    client.is_blocked = known.stoppable;
    known_.emplace(launch.id, known);
    lane_.Enqueue(IdOf(number), CommandFor(known), now);
  }
}

void LaneFront::OnRequestBegan(std::size_t number, std::uint64_t request, TimePoint arrived,
                               TimePoint now) {
  clients_[number].unmarked.push_back({.number = request, .arrived = arrived});
  Mark(number, now);
}

void LaneFront::OnRequestEnded(std::size_t number, std::uint64_t request, TimePoint now) {
  lane_.EndRequest(IdOf(number), request, now);
  --clients_[number].marked;
  Mark(number, now);
}

void LaneFront::Mark(std::size_t number, TimePoint now) {
  Client& client = clients_[number];
  for (; !client.unmarked.empty() && client.marked < scheduler::kOpenRequestsMax; ++client.marked) {
    lane_.BeginRequest(IdOf(number), client.unmarked.front(), now);
    client.unmarked.pop_front();
  }
}

bool LaneFront::OnFinished(const Finished& finished, TimePoint now) {
  const scheduler::Charge charge = lane_.OnCompleted(finished.id, now);
  const auto found = known_.find(finished.id);
  Known& known = found->second;
  const std::size_t client = known.launch.client;
  clients_[client].charged += charge.held;
  known.blocks_done = finished.blocks_done;
  if (known.blocks_done < known.launch.kernel.blocks) {
    lane_.EnqueueFront(IdOf(client), CommandFor(known), now);
    return false;
  }
  const Kernel& kernel = known.launch.kernel;
  if (kernel.cost_key != 0)
    predictor_.AddSample(kernel.cost_key, SoloTime(kernel, options_.multiprocessors));
  if (known.stoppable) clients_[client].is_blocked = false;
  known_.erase(found);
  Feed(client, now);
  return true;
}

void LaneFront::Act(TimePoint now) {
  while (const std::optional<scheduler::Action> action = lane_.Next(now)) {
    if (action->kind == scheduler::Action::Kind::kStop) {
      device_.RequestStop(action->command, now);
      continue;
    }
    const Known& known = known_.at(action->command);
    thread_free_ = std::max(thread_free_, now) + options_.costs.launch_call;
    device_.Submit({.id = known.launch.id,
                    .stream = known.launch.client,
                    .kernel = known.launch.kernel,
                    .first_block = known.blocks_done,
                    .priority = action->priority,
                    .stoppable = known.stoppable},
                   thread_free_);
  }
}

}  // namespace gpushared::simulation
