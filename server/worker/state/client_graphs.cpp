// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/client_graphs.h"

namespace gpushared::server {

void Graph::Set(std::uint32_t number, std::shared_ptr<const GraphNode> node, std::uint64_t serial) {
  // New parameters alone do not change a prediction, but a different copy may be one that the
  // device executes separately.
  const bool is_like_before = number < nodes_.size() && node->kind == CommandKind::kLaunch &&
                              nodes_[number]->kind == node->kind &&
                              nodes_[number]->cost_key == node->cost_key;
  if (!is_like_before) cuts = 0;
  if (number == nodes_.size()) {
    charge_.Add(kBytesPerNode);
    works_.push_back(&node->work);
    node_serials_.push_back(serial);
    nodes_.push_back(std::move(node));
  } else {
    works_[number] = &node->work;
    node_serials_[number] = serial;
    nodes_[number] = std::move(node);
  }
  serial_ = serial;
  checked_at = ~std::uint64_t{0};
  reach_as_of.reset();
}

void ClientGraphs::Retire(Graph& graph) {
  if (graph.launches_ == 0) return;
  graph.is_retired_ = true;
  ++retired_;
}

void ClientGraphs::Destroy(std::uint32_t number) {
  const auto found = graphs_.find(number);
  Retire(*found->second);
  graphs_.erase(found);
}

Graph& ClientGraphs::ToChange(std::uint32_t number) {
  std::shared_ptr<Graph>& graph = graphs_[number];
  if (graph->launches_ > 0) {
    Retire(*graph);
    graph = std::make_shared<Graph>(*graph);
    graph->launches_ = 0;
    graph->is_retired_ = false;
  }
  return *graph;
}

void ClientGraphs::Set(std::uint32_t number, std::uint32_t node,
                       std::shared_ptr<const GraphNode> content) {
  graphs_[number]->Set(node, std::move(content), ++last_serial_);
}

std::shared_ptr<Graph> ClientGraphs::Take(std::uint32_t number) {
  std::shared_ptr<Graph> graph = graphs_[number];
  ++graph->launches_;
  return graph;
}

void ClientGraphs::Return(Graph& graph) {
  if (--graph.launches_ == 0 && graph.is_retired_) --retired_;
}

}  // namespace gpushared::server
