// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/lane_front.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gpushared::simulation {
namespace {

scheduler::ClientId GetId(std::size_t number) { return {number + 1}; }

}  // namespace

LaneFront::LaneFront(GpuDevice& device, std::unique_ptr<scheduler::Policy> policy,
                     const FrontOptions& options)
    : device_(device), options_(options), lane_(std::move(policy), options.lane) {
  const GpuCosts& costs = options_.costs;
  const Duration launch_bubble = costs.notice + costs.launch_call + costs.launch_delay;
  lane_.SetLaunchBubble(options_.launch_bubble.value_or(launch_bubble));
}

void LaneFront::AddClient(const scheduler::ClientSpec& spec, TimePoint now) {
  lane_.AddClient(GetId(clients_.size()), spec, now);
  clients_.push_back({.spec = spec, .waiting = {}, .requests = {}});
}

void LaneFront::LimitClient(std::size_t number, std::uint32_t per_mille, TimePoint now) {
  const std::array caps{scheduler::ShareCap{.number = number, .per_mille = per_mille}};
  lane_.LimitClient(GetId(number), caps, now);
}

LaneFront::Duration LaneFront::Predicted(const Kernel& kernel) const {
  return kernel.cost_key == 0 ? SoloTime(kernel, options_.multiprocessors)
                              : predictor_.Predict(kernel.cost_key);
}

bool LaneFront::IsStoppable(const Client& client, const Kernel& kernel) const {
  return (IsCopy(kernel) || (options_.claims && !kernel.is_nonpreemptible)) &&
         client.spec.scheduling_class != scheduler::SchedulingClass::kHigh &&
         Predicted(kernel) >= options_.stop_min;
}

bool LaneFront::MustGiveWay(std::size_t number) const {
  const Client& client = clients_[number];
  return std::ranges::any_of(clients_, [&](const Client& other) {
    return &other != &client && lane_.IsPreemptibleBy(client.spec, other.spec);
  });
}

// Splits graphs as the worker does: a graph of the high class is one command, others are split.
std::size_t LaneFront::NextPart(std::size_t number) const {
  const Client& client = clients_[number];
  const bool is_node = client.waiting.front().kernel.follows_in_graph ||
                       client.waiting.front().kernel.graph_nodes > 0;
  const auto time_of = [&](std::size_t at) {
    return SoloTime(client.waiting[at].kernel, options_.multiprocessors);
  };
  if (!is_node) return 1;
  const bool is_whole = client.spec.scheduling_class == scheduler::SchedulingClass::kHigh;
  const Duration limit = MustGiveWay(number) ? options_.stop_min : options_.policy.slice;
  if (!is_whole && time_of(0) >= limit) return 1;
  std::size_t end = 1;
  Duration part = time_of(0);
  for (; end < client.waiting.size() && client.waiting[end].kernel.follows_in_graph; ++end) {
    part += time_of(end);
    if (!is_whole && part > limit) break;
  }
  return end;
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
  for (const Launch& node : known.behind)
    predicted += SoloTime(node.kernel, options_.multiprocessors) + options_.costs.graph_gap;
  return {.command = known.launch.id, .predicted = predicted, .stoppable = known.stoppable};
}

void LaneFront::Enqueue(const Launch& launch, TimePoint now) {
  Client& client = clients_[launch.client];
  client.waiting.push_back(launch);
  // A graph begins here; all its nodes are enqueued together.
  if (launch.kernel.graph_nodes > 0) client.nodes_to_come = launch.kernel.graph_nodes;
  if (client.nodes_to_come > 0 && --client.nodes_to_come > 0) return;
  Feed(launch.client, now);
}

void LaneFront::Feed(std::size_t number, TimePoint now) {
  Client& client = clients_[number];
  while (!client.is_blocked && !client.waiting.empty()) {
    const std::size_t nodes = NextPart(number);
    const Launch launch = client.waiting.front();
    Known known{launch, nodes == 1 && IsStoppable(client, launch.kernel)};
    const auto end = client.waiting.begin() + static_cast<std::ptrdiff_t>(nodes);
    known.behind.assign(client.waiting.begin() + 1, end);
    client.waiting.erase(client.waiting.begin(), end);
    for (const Launch& node : known.behind) command_of_.emplace(node.id, launch.id);
    client.is_blocked = known.stoppable;
    lane_.Enqueue(GetId(number), CommandFor(known), now);
    known_.emplace(launch.id, std::move(known));
  }
}

void LaneFront::OnRequestBegan(std::size_t number, std::uint64_t request, TimePoint arrived,
                               TimePoint now) {
  clients_[number].requests.Begin(lane_, GetId(number), {.number = request, .arrived = arrived},
                                  now);
}

void LaneFront::OnRequestEnded(std::size_t number, std::uint64_t request, TimePoint now) {
  clients_[number].requests.End(lane_, GetId(number), request, now);
}

bool LaneFront::OnFinished(const Finished& finished, TimePoint now) {
  const auto node = command_of_.find(finished.id);
  const auto found = known_.find(node == command_of_.end() ? finished.id : node->second);
  Known& known = found->second;
  if (node != command_of_.end()) command_of_.erase(node);
  // The lane is notified of the last node only.
  if (!known.behind.empty() && known.nodes_done++ < known.behind.size()) return true;
  const scheduler::Charge charge = lane_.OnCompleted(found->first, now);
  const std::size_t client = known.launch.client;
  clients_[client].charged += charge.held;
  known.blocks_done = finished.blocks_done;
  if (known.behind.empty() && known.blocks_done < known.launch.kernel.blocks) {
    lane_.EnqueueFront(GetId(client), CommandFor(known), now);
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
    ++decisions_;
    const Known& known = known_.at(action->command);
    const GpuCosts& costs = options_.costs;
    thread_free_ =
        std::max(thread_free_, now) + (known.behind.empty() ? costs.launch_call : costs.graph_call);
    Work work{.id = known.launch.id,
              .stream = known.launch.client,
              .kernel = known.launch.kernel,
              .first_block = known.blocks_done,
              .priority = action->priority,
              .stoppable = known.stoppable};
    // The first node of a part does not follow another node on the device.
    work.kernel.follows_in_graph = false;
    device_.Submit(work, thread_free_);
    for (const Launch& node : known.behind) {
      work.id = node.id;
      work.kernel = node.kernel;
      device_.Submit(work, thread_free_);
    }
  }
}

}  // namespace gpushared::simulation
