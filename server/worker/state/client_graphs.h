// SPDX-License-Identifier: Apache-2.0
// Graphs of a client: lists of work items that it launches as one command.

#ifndef GPUSHARED_SERVER_WORKER_STATE_CLIENT_GRAPHS_H_
#define GPUSHARED_SERVER_WORKER_STATE_CLIENT_GRAPHS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ipc/wire/layout.h"
#include "scheduler/recent_samples.h"
#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/device/reach.h"
#include "server/worker/state/command_kind.h"
#include "server/worker/state/graph_budget.h"

namespace gpushared::server {

// A graph node as validated when it was set. Constant from then on.
struct GraphNode {
  // Device memory that a copy or fill touches.
  struct Range {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;  // 0: none.
  };

  device::GraphNode work;  // The fields that are known only at launch are unset.
  CommandKind kind = CommandKind::kLaunch;
  std::uint64_t units = 0;
  std::uint64_t bytes = 0;        // Bytes copied or filled.
  std::uint64_t cost_key = 0;     // Launches only, like all fields up to `parameter_bytes`.
  std::uint64_t cost_kernel = 0;  // See CostModel.
  std::uint64_t module_serial = 0;
  std::uint16_t module = 0;
  std::unique_ptr<std::byte[]> parameters;
  std::uint32_t parameter_bytes = 0;
  std::array<Range, 2> ranges = {};
  GraphCharge charge;  // Empty until the node counts toward the budget.

  // Host memory of the node.
  std::uint64_t footprint() const { return sizeof(GraphNode) + parameter_bytes; }
};

// A graph in the form that launches execute. Its nodes never change while a launch uses it: see
// ClientGraphs::ToChange.
//
// Confined to the device thread.
class Graph {
 public:
  // Host memory of the graph itself, and per node in addition to the node's own.
  static constexpr std::uint64_t kFootprint = 768;
  static constexpr std::uint64_t kBytesPerNode = 48;

  Graph(std::uint32_t number, std::shared_ptr<GraphBytes> bytes)
      : number_(number), charge_(std::move(bytes), kFootprint) {}
  Graph(const Graph& other) = default;
  Graph& operator=(const Graph&) = delete;

  std::uint32_t number() const { return number_; }
  // Identifies this set of nodes; unique among the client's graphs.
  std::uint64_t serial() const { return serial_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(nodes_.size()); }
  const GraphNode& node(std::uint32_t number) const { return *nodes_[number]; }
  // Returns the work items of the nodes [first, end) for the device.
  std::span<const device::GraphNode* const> Works(std::uint32_t first, std::uint32_t end) const {
    return std::span(works_).subspan(first, end - first);
  }
  // See device::GraphWork.
  std::span<const std::uint64_t> node_serials() const { return node_serials_; }
  // Host memory of a copy of this graph that shares its nodes.
  std::uint64_t copy_bytes() const { return kFootprint + nodes_.size() * kBytesPerNode; }
  // Replaces a node or appends one. `serial` must be unique among the client's changes.
  void Set(std::uint32_t number, std::shared_ptr<const GraphNode> node, std::uint64_t serial);

  // Launches taken but not finished.
  std::uint32_t launches() const { return launches_; }
  // Modules that the graph's nodes need. They stay loaded while launches of the graph are
  // unfinished; see CommandScope.
  std::span<const std::uint16_t> modules() const { return modules_; }

  // CommandScope::losses when all nodes were last found to be valid.
  std::uint64_t checked_at = ~std::uint64_t{0};
  void SetModules(std::vector<std::uint16_t> modules) { modules_ = std::move(modules); }

  // Access set of all nodes together, as of ClientBuffers::changes == reach_as_of.
  device::Reach reach;
  std::optional<std::uint64_t> reach_as_of;

  // Nodes that the device executes separately, and whether the graph has any.
  std::vector<bool> alone;
  bool has_alone = false;
  // Predicted times of the graph's nodes at the last lookup, their sum, and whether every node's
  // time has been measured.
  std::vector<scheduler::Duration> predicted;
  scheduler::Duration predicted_sum{};
  bool knows_all = false;
  // Number of launches whose splitting was decided. `cuts` counts since a node last changed in more
  // than its parameters.
  std::uint64_t cuts = 0;
  std::uint64_t cuts_ever = 0;
  // Measured times of launches that ran unsplit.
  scheduler::RecentSamples<19> whole;

 private:
  friend class ClientGraphs;
  std::uint32_t number_;
  std::uint64_t serial_ = 0;
  std::vector<std::shared_ptr<const GraphNode>> nodes_;
  std::vector<const device::GraphNode*> works_;
  std::vector<std::uint64_t> node_serials_;  // Serials of the changes that set the nodes.
  std::vector<std::uint16_t> modules_;
  std::uint32_t launches_ = 0;
  bool is_retired_ = false;  // Was changed or destroyed while launches used it.
  GraphCharge charge_;
};

// A client's graphs by number.
//
// Confined to the device thread.
class ClientGraphs {
 public:
  // Limit of graphs that were changed or destroyed while launches use them. While the limit is
  // reached, no command is taken from the client.
  static constexpr std::uint32_t kRetiredMax = 8;

  explicit ClientGraphs(std::shared_ptr<GraphBudget> budget)
      : bytes_(std::make_shared<GraphBytes>(std::move(budget))) {}

  bool empty() const { return graphs_.empty(); }
  // Null if no such graph exists.
  Graph* Find(std::uint32_t number) const {
    const auto found = graphs_.find(number);
    return found == graphs_.end() ? nullptr : found->second.get();
  }
  // The number must be free.
  void Make(std::uint32_t number) { graphs_[number] = std::make_shared<Graph>(number, bytes_); }
  // The graph must exist.
  void Destroy(std::uint32_t number);
  // Returns the graph for modification. Launches that use it keep the previous version. The graph
  // must exist.
  Graph& ToChange(std::uint32_t number);
  // The graph must exist and have been returned by ToChange.
  void Set(std::uint32_t number, std::uint32_t node, std::shared_ptr<const GraphNode> content);

  // Called when a launch of the graph is taken, and when it has ended.
  std::shared_ptr<Graph> Take(std::uint32_t number);
  void Return(Graph& graph);

  bool MayTake() const { return retired_ < kRetiredMax; }
  // Charges the node's bytes to the client until the node is destroyed.
  void Count(GraphNode& node) const { node.charge = GraphCharge(bytes_, node.footprint()); }
  // Host memory of all graphs and nodes, including those that only launches still use.
  const GraphBytes& bytes() const { return *bytes_; }

 private:
  void Retire(Graph& graph);

  std::map<std::uint32_t, std::shared_ptr<Graph>> graphs_;
  // Shared, because nodes update it and the last launch may outlive this.
  const std::shared_ptr<GraphBytes> bytes_;
  std::uint64_t last_serial_ = 0;
  std::uint32_t retired_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_CLIENT_GRAPHS_H_
