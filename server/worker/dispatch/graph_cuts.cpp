// SPDX-License-Identifier: Apache-2.0
// Splitting of graphs into parts for the lane.
//
// A node that the device does not take within a graph always forms a separate part. Otherwise,
// a graph of a high-class client is a single command, because it is never preempted. Other clients'
// graphs are split into parts, so that the lane can schedule other work between two parts and more
// urgent work waits for at most one part. While a client is connected for which the graph must be
// preemptible, parts are so short that preempting them is not worthwhile; otherwise a part may take
// a time slice. A node that takes longer, or whose time is unknown, forms a separate part and is
// treated like a command outside a graph: it can be preempted, and the cost model learns from it.
// Periodically every node forms its own part, which keeps the predictions current.
#include <algorithm>
#include <numeric>
#include <variant>

#include "server/worker/dispatch/submitter.h"
#include "server/worker/state/scope_checks.h"

namespace gpushared::server {

namespace {

bool IsOfHighClass(const ClientState& client) {
  return client.spec().scheduling_class == scheduler::SchedulingClass::kHigh;
}

}  // namespace

bool Submitter::Cut(ClientState& client, std::uint32_t slot) {
  CommandSlab& slab = client.streams.slab();
  CommandSlot& command = slab[slot];
  if (command.kind != CommandKind::kGraph || command.past() != CommandSlot::Past::kNew) return true;
  if (client.streams.AwaitsSlot(slot)) return false;
  if (command.first_node == 0) {
    Refresh(client, *command.graph);
    // In the first launches, nodes with unknown times are separate in any case.
    command.goes_singly = command.graph->cuts >= CostModel::kSampleEvery &&
                          costs_.IsSampled(client.setup.session, command.graph->cuts_ever);
  }
  const std::uint32_t end = EndOfPart(client, command);
  if (end != command.end_node) {
    if (!client.streams.Cut(slot)) return false;
    CommandSlot& rest = slab[command.next];
    rest.first_node = end;
    rest.units = rest.end_node - end;
    command.end_node = end;
    command.units = end - command.first_node;
  }
  TakeForm(client, command);
  return true;
}

void Submitter::Refresh(const ClientState& client, Graph& graph) const {
  // Predictions change mainly during the first launches, so most later launches skip the lookup per
  // node.
  constexpr std::uint64_t kFirst = 4;
  ++graph.cuts_ever;
  if (++graph.cuts > kFirst && !costs_.IsSampled(client.setup.session, graph.cuts_ever)) return;
  graph.predicted.resize(graph.size());
  graph.alone.resize(graph.size());
  graph.knows_all = true;
  graph.has_alone = false;
  for (std::uint32_t number = 0; number < graph.size(); ++number) {
    const GraphNode& node = graph.node(number);
    graph.predicted[number] = costs_.Predict(node);
    graph.knows_all = graph.knows_all && costs_.Knows(node);
    graph.alone[number] = !device_.TakesNode(node.work);
    graph.has_alone = graph.has_alone || graph.alone[number];
  }
  graph.predicted_sum =
      std::accumulate(graph.predicted.begin(), graph.predicted.end(), scheduler::Duration{});
}

bool Submitter::IsWorthCutting(const ClientState& client, const CommandSlot& command) const {
  return command.kind == CommandKind::kGraph && !IsOfHighClass(client) &&
         of_client_[client].must_be_preemptible && command.end_node - command.first_node > 1 &&
         command.past() == CommandSlot::Past::kNew && command.predicted() > kWorthStopping;
}

std::uint32_t Submitter::EndOfPart(const ClientState& client, const CommandSlot& command) const {
  std::uint32_t end = command.first_node + 1;
  const Graph& graph = *command.graph;
  if (graph.has_alone && graph.alone[command.first_node]) return end;
  if (IsOfHighClass(client)) {
    if (!graph.has_alone) return command.end_node;
    while (end < command.end_node && !graph.alone[end]) ++end;
    return end;
  }
  if (command.goes_singly) return end;
  const scheduler::Duration limit =
      of_client_[client].must_be_preemptible ? kWorthStopping : slice_;
  const auto is_on_its_own = [&](std::uint32_t number) {
    return graph.predicted[number] >= limit || graph.alone[number] ||
           (!graph.knows_all && !costs_.Knows(graph.node(number)));
  };
  if (is_on_its_own(command.first_node)) return end;
  scheduler::Duration part = graph.predicted[command.first_node];
  while (end < command.end_node && !is_on_its_own(end) && part + graph.predicted[end] <= limit) {
    part += graph.predicted[end++];
  }
  return end;
}

void Submitter::TakeForm(ClientState& client, CommandSlot& command) const {
  const Graph& graph = *command.graph;
  if (command.end_node - command.first_node == 1) {
    const GraphNode& node = graph.node(command.first_node);
    command.kind = node.kind;
    command.units = node.units;
    command.bytes = node.bytes;
    command.cost_key = node.cost_key;
    command.cost_kernel = node.cost_kernel;
    std::visit([&](const auto& work) { command.work = work; }, node.work);
    if (node.kind == CommandKind::kLaunch) RetainModule(client, node.module, command);
    return;
  }
  device::GraphWork work;
  work.nodes = graph.Works(command.first_node, command.end_node);
  if (!command.is_part_of_graph()) {
    work.number = graph.number();
    work.version = graph.serial();
    work.node_versions = graph.node_serials();
    command.nodes_predicted = graph.whole.empty() ? graph.predicted_sum : graph.whole.Quantile(90);
    command.work = work;
    return;
  }
  command.work = work;
  command.nodes_predicted =
      std::accumulate(graph.predicted.begin() + command.first_node,
                      graph.predicted.begin() + command.end_node, scheduler::Duration{});
}

void Submitter::LearnGraph(const CommandSlot& command) const {
  if (command.timing != Timing::kSample || command.is_part_of_graph()) return;
  command.graph->whole.Add(std::max(command.measured, scheduler::Duration(1)));
}

}  // namespace gpushared::server
