// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/graph_book.h"

#include <algorithm>

#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {

Code CheckEdges(const EdgeData* edges, std::size_t count) {
  if (edges == nullptr) return Code::kSuccess;
  const bool is_usual = std::all_of(edges, edges + count, [](const EdgeData& edge) {
    return edge.from_port == 0 && edge.to_port == 0 && edge.type == 0;
  });
  if (is_usual) return Code::kSuccess;
  return Reject(Code::kNotSupported,
                "edge rejected: a node starts only when its dependencies have ended");
}

Code RejectCopyWithMemory() {
  return Reject(Code::kNotSupported,
                "rejected: a graph that allocates or frees memory cannot be copied");
}

std::shared_ptr<GraphNode> GraphBook::Find(GraphNodeHandle handle) const {
  std::shared_ptr<GraphNode> node = driver_.graph_nodes.Find(handle);
  return node == nullptr || node->graph == nullptr ? nullptr : node;
}

Code GraphBook::FindNodes(const Graph& graph, const Dependencies& needs,
                          std::vector<GraphNode*>& nodes) const {
  if (needs.count != 0 && needs.handles == nullptr) return Code::kInvalidValue;
  // A valid list has no duplicates, so it is not longer than the list of the graph's nodes.
  if (needs.count > graph.nodes().size()) return Code::kInvalidValue;
  for (const GraphNodeHandle handle : std::span(needs.handles, needs.count)) {
    const std::shared_ptr<GraphNode> node = Find(handle);
    if (node == nullptr || node->graph != &graph) return Code::kInvalidValue;
    if (std::ranges::find(nodes, node.get()) != nodes.end()) return Code::kInvalidValue;
    nodes.push_back(node.get());
  }
  return CheckEdges(needs.edges, needs.count);
}

GraphHandle GraphBook::GetHandle(const std::shared_ptr<Graph>& graph) {
  if (graph->handle == nullptr) graph->handle = driver_.graphs.Insert(graph);
  return graph->handle;
}

GraphNodeHandle GraphBook::GetHandle(GraphNode& node) {
  if (node.handle == nullptr) node.handle = driver_.graph_nodes.Insert(node.shared_from_this());
  return node.handle;
}

void GraphBook::DropHandle(GraphNode& node) {
  if (const auto* const child = std::get_if<ChildWork>(node.work.get())) {
    DropHandles(*child->graph);
  }
  if (node.handle != nullptr) driver_.graph_nodes.Remove(node.handle);
  node.handle = nullptr;
}

void GraphBook::DropHandles(Graph& graph) {
  for (const auto& node : graph.nodes()) DropHandle(*node);
  if (graph.handle != nullptr) driver_.graphs.Remove(graph.handle);
  graph.handle = nullptr;
}

Code GraphBook::Show(std::span<GraphNode* const> nodes, GraphNodeHandle* list, std::size_t* count) {
  if (list != nullptr) {
    // Entries that do not fit are omitted; unused ones are null.
    for (std::size_t i = 0; i < nodes.size() && i < *count; ++i) {
      list[i] = GetHandle(*nodes[i]);
      if (list[i] == nullptr) return Code::kOutOfMemory;
    }
    for (std::size_t i = nodes.size(); i < *count; ++i) list[i] = nullptr;
  }
  *count = list == nullptr ? nodes.size() : std::min(*count, nodes.size());
  return Code::kSuccess;
}

}  // namespace gpushared::drop_in
