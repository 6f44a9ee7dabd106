// SPDX-License-Identifier: Apache-2.0
// The part of CommandPump that handles graphs.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "server/device/reach.h"
#include "server/worker/intake/command_pump.h"
#include "server/worker/state/scope_checks.h"

namespace gpushared::server {

namespace {

// Makes a node of the command that was prepared in the slot.
std::shared_ptr<GraphNode> GetNode(CommandSlot& slot, const ClientState& client) {
  auto node = std::make_shared<GraphNode>();
  node->kind = slot.kind;
  node->units = slot.units;
  node->bytes = slot.bytes;
  node->cost_key = slot.cost_key;
  node->cost_kernel = slot.cost_kernel;
  if (auto* const launch = std::get_if<device::LaunchWork>(&slot.work)) {
    node->parameter_bytes = static_cast<std::uint32_t>(launch->parameters.size());
    node->parameters = std::make_unique_for_overwrite<std::byte[]>(node->parameter_bytes);
    std::ranges::copy(launch->parameters, node->parameters.get());
    launch->parameters = {node->parameters.get(), node->parameter_bytes};
    // On devices that can pause kernels, more urgent work then waits for part of a thread block
    // instead of for a whole node.
    launch->may_be_paused = true;
    launch->may_be_stopped = false;
    launch->paused.reset();
    node->module = slot.modules[0];
    node->module_serial = client.scope.module(node->module).serial;
    node->work = *launch;
  } else if (const auto* const copy = std::get_if<device::CopyWork>(&slot.work)) {
    node->work = *copy;
  } else {
    node->work = std::get<device::FillWork>(slot.work);
  }
  return node;
}

void RecordRanges(GraphNode& node, const ipc::LaunchCommand&) { node.ranges = {}; }
void RecordRanges(GraphNode& node, const ipc::CopyCommand& copy) {
  node.ranges[0] = {copy.device_address, copy.device_bytes};
}
void RecordRanges(GraphNode& node, const ipc::CopyOnDeviceCommand& copy) {
  node.ranges = {{{copy.destination, copy.destination_bytes}, {copy.source, copy.source_bytes}}};
}
void RecordRanges(GraphNode& node, const ipc::FillCommand& fill) {
  node.ranges[0] = {fill.destination, fill.destination_bytes};
}

// Undoes RetainModule for both modules, because only a command that runs keeps its modules loaded.
void ForgetModules(ClientState& client, CommandSlot& slot) {
  for (std::uint16_t& module : slot.modules) {
    // Never releases a module, because one that is being unloaded cannot be named.
    if (module != CommandSlot::kNoModule) (void)client.scope.ReturnModule(module);
    module = CommandSlot::kNoModule;
  }
}

void RecordNode(CommandFailure& rejected, std::uint32_t graph, std::uint32_t node) {
  rejected.node = {.graph = graph, .number = node};
}

// Checks a node as a single command is checked: its module must still be the same one, and its
// memory must be mapped.
MaybeRejected CheckNode(ClientState& client, const GraphNode& node, CommandSlot& slot) {
  if (node.kind == CommandKind::kLaunch) {
    const ModuleEntry& module = client.scope.module(node.module);
    if (module.module == nullptr || module.is_leaving || module.serial != node.module_serial) {
      return Reject(NoModule{.module = node.module});
    }
    RetainModule(client, node.module, slot);
    return {};
  }
  const char* const what = node.kind == CommandKind::kFill ? "fill" : "copy";
  for (const GraphNode::Range& range : node.ranges) {
    if (range.bytes == 0) continue;
    if (MaybeRejected why = CheckMapped(client, what, range.address, range.bytes, slot)) return why;
  }
  return {};
}

// Checks whether the client's graphs may take `more` bytes while `less` are about to be returned.
MaybeRejected CheckBytes(const ClientState& client, const char* what, std::uint64_t more,
                         std::uint64_t less = 0) {
  const GraphBytes& bytes = client.graphs.bytes();
  const std::uint64_t then = bytes.held() + more - less;
  const std::uint64_t most = client.setup.limits.graphs_bytes_max;
  if (then > most) {
    return Reject(BeyondGraphQuota{.what = what, .bytes = then, .bytes_max = most});
  }
  if (const std::uint64_t excess = bytes.budget().GetExcess(bytes.held(), then); excess > 0) {
    return Reject(BeyondGraphBudget{.what = what,
                                    .bytes = then,
                                    .available_bytes = then - excess,
                                    .total_bytes = bytes.budget().total()});
  }
  return {};
}

// Limits the lookups of a visit to less than a millisecond, because a client may change its buffers
// before every launch of the same graph.
constexpr std::size_t kReachLookUpsMax = 8192;

// Returns the access set of all nodes of a graph. Adds to `looked_up`.
device::Reach ReachOfNodes(const ClientState& client, const Graph& graph, std::size_t& looked_up) {
  device::Reach all;
  for (std::uint32_t number = 0; number < graph.size(); ++number) {
    const device::GraphNode& work = graph.node(number).work;
    device::Reach reach;
    if (const auto* const launch = std::get_if<device::LaunchWork>(&work)) {
      const device::KernelInfo& kernel = launch->module->kernels()[launch->kernel];
      looked_up += 1 + kernel.reach_offsets.size();
      if (looked_up > kReachLookUpsMax) return device::Reach::Everything();
      reach = client.buffers.GetReach(kernel, launch->parameters);
    } else {
      reach = std::visit([](const auto& any) { return device::GetReach(any); }, work);
    }
    if (reach.is_everything()) return reach;
    for (const device::MemoryPiece& piece : reach.pieces()) all.Add(piece);
  }
  return all;
}

}  // namespace

MaybeRejected CommandPump::Prepare(ClientState& client, const ipc::MakeGraphCommand& make,
                                   CommandSlot& slot) {
  slot.kind = CommandKind::kChangeGraph;
  if (client.graphs.Find(make.graph) != nullptr) {
    return Reject(GraphExists{.graph = make.graph});
  }
  if (MaybeRejected why = CheckBytes(client, "graph", Graph::kFootprint)) return why;
  client.graphs.Make(make.graph);
  return {};
}

MaybeRejected CommandPump::Prepare(ClientState& client, const ipc::SetGraphNodeCommand& set,
                                   CommandSlot& slot) {
  Graph* graph = client.graphs.Find(set.graph);
  MaybeRejected rejected;
  if (graph == nullptr) {
    rejected = Reject(NoGraph{.what = "node", .graph = set.graph});
  } else if (set.node > graph->size()) {
    rejected = Reject(NoNode{.graph = set.graph, .node = set.node, .nodes = graph->size()});
  } else {
    rejected = std::visit([&](const auto& content) { return Prepare(client, content, slot); },
                          set.content);
    if (rejected != nullptr) RecordNode(*rejected, set.graph, set.node);
  }
  if (rejected != nullptr) {
    ForgetModules(client, slot);
    slot.kind = CommandKind::kChangeGraph;
    return rejected;
  }
  std::shared_ptr<GraphNode> node = GetNode(slot, client);
  std::visit([&](const auto& content) { RecordRanges(*node, content); }, set.content);
  ForgetModules(client, slot);
  slot.kind = CommandKind::kChangeGraph;
  client.graphs.Count(*node);
  // The replaced node is freed immediately unless a launch uses it, so the check may be off by one
  // node.
  const bool replaces = set.node < graph->size();
  const std::uint64_t replaced = replaces ? graph->node(set.node).footprint() : 0;
  const std::uint64_t more =
      (replaces ? 0 : Graph::kBytesPerNode) + (graph->launches() > 0 ? graph->copy_bytes() : 0);
  if (MaybeRejected why = CheckBytes(client, "node", more, replaced)) {
    RecordNode(*why, set.graph, set.node);
    return why;
  }
  if (graph->launches() > 0) nodes_visited_ += graph->size();
  (void)client.graphs.ToChange(set.graph);
  client.graphs.Set(set.graph, set.node, std::move(node));
  return {};
}

MaybeRejected CommandPump::CheckGraph(ClientState& client, Graph& graph) {
  std::vector<std::uint16_t> modules;
  nodes_visited_ += graph.size();
  CommandSlot* const slot = &graph_slot_;
  for (std::uint32_t number = 0; number < graph.size(); ++number) {
    MaybeRejected why = CheckNode(client, graph.node(number), *slot);
    for (const std::uint16_t module : slot->modules) {
      if (module == CommandSlot::kNoModule) continue;
      if (modules.empty() || modules.back() != module) modules.push_back(module);
    }
    ForgetModules(client, *slot);
    if (why == nullptr) continue;
    RecordNode(*why, graph.number(), number);
    return why;
  }
  std::ranges::sort(modules);
  const auto [end, last] = std::ranges::unique(modules);
  modules.erase(end, last);
  graph.SetModules(std::move(modules));
  graph.checked_at = client.scope.losses();
  return {};
}

MaybeRejected CommandPump::Prepare(ClientState& client, const ipc::LaunchGraphCommand& launch,
                                   CommandSlot& slot) {
  slot.kind = CommandKind::kGraph;
  Graph* graph = client.graphs.Find(launch.graph);
  if (graph == nullptr) return Reject(NoGraph{.what = "launch", .graph = launch.graph});
  if (graph->size() == 0) return Reject(EmptyGraph{.graph = launch.graph});
  if (graph->checked_at != client.scope.losses()) {
    // A graph that launches use must not change, because they will return the modules that it has
    // now. ToChange therefore copies such a graph.
    const std::uint64_t copied = graph->launches() > 0 ? graph->copy_bytes() : 0;
    if (MaybeRejected why = CheckBytes(client, "launch", copied)) return why;
    graph = &client.graphs.ToChange(launch.graph);
    if (MaybeRejected why = CheckGraph(client, *graph)) return why;
  }
  slot.graph = client.graphs.Take(launch.graph);
  for (const std::uint16_t module : slot.graph->modules()) client.scope.UseModule(module);
  slot.first_node = 0;
  slot.end_node = slot.graph->size();
  slot.units = slot.end_node;
  RecordReach(client, *slot.graph, slot);
  return {};
}

void CommandPump::RecordReach(const ClientState& client, Graph& graph, CommandSlot& slot) {
  if (client.buffers.empty()) return;
  if (graph.reach_as_of != client.buffers.changes()) {
    std::size_t looked_up = 0;
    graph.reach = ReachOfNodes(client, graph, looked_up);
    graph.reach_as_of = client.buffers.changes();
    nodes_visited_ += graph.size() + looked_up;
  }
  slot.SetReach(graph.reach);
}

MaybeRejected CommandPump::Prepare(ClientState& client, const ipc::DestroyGraphCommand& destroy,
                                   CommandSlot& slot) {
  slot.kind = CommandKind::kChangeGraph;
  const Graph* const graph = client.graphs.Find(destroy.graph);
  if (graph == nullptr) {
    return Reject(NoGraph{.what = "end", .graph = destroy.graph});
  }
  nodes_visited_ += graph->size();
  client.graphs.Destroy(destroy.graph);
  return {};
}

}  // namespace gpushared::server
