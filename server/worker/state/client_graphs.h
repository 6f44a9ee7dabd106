// SPDX-License-Identifier: Apache-2.0
// Graphs of a client: lists of works that it launches as one command.

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

// A node as it was checked when it was set. Constant from then on.
struct GraphNode {
  // Device memory that a copy or fill touches.
  struct Range {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;  // 0: none.
  };

  device::GraphNode work;  // Without what is known at its launch.
  CommandKind kind = CommandKind::kLaunch;
  std::uint64_t units = 0;
  std::uint64_t bytes = 0;        // Copied or filled.
  std::uint64_t cost_key = 0;     // Of launches; so are the next four.
  std::uint64_t cost_kernel = 0;  // See CostModel.
  std::uint64_t module_serial = 0;
  std::uint16_t module = 0;
  std::unique_ptr<std::byte[]> parameters;
  std::uint32_t parameter_bytes = 0;
  std::array<Range, 2> ranges = {};
  GraphCharge charge;  // Once it counts.

  // Host memory that it takes.
  std::uint64_t footprint() const { return sizeof(GraphNode) + parameter_bytes; }
};

// A graph as launches run it. Nobody changes its nodes while a launch has it: see
// ClientGraphs::ToChange.
//
// Confined to the device thread.
class Graph {
 public:
  // Host memory for itself, and for each node beside the node's own.
  static constexpr std::uint64_t kFootprint = 768;
  static constexpr std::uint64_t kBytesPerNode = 48;

  Graph(std::uint32_t number, std::shared_ptr<GraphBytes> bytes)
      : number_(number), charge_(std::move(bytes), kFootprint) {}
  Graph(const Graph& other) = default;
  Graph& operator=(const Graph&) = delete;

  std::uint32_t number() const { return number_; }
  std::uint64_t serial() const { return serial_; }  // Of these nodes, among the client's graphs.
  std::uint32_t size() const { return static_cast<std::uint32_t>(nodes_.size()); }
  const GraphNode& node(std::uint32_t number) const { return *nodes_[number]; }
  // The works of the nodes [first, end), as a device takes them.
  std::span<const device::GraphNode* const> Works(std::uint32_t first, std::uint32_t end) const {
    return std::span(works_).subspan(first, end - first);
  }
  // See device::GraphWork.
  std::span<const std::uint64_t> node_serials() const { return node_serials_; }
  // Host memory of another one with the same nodes, which stay where they are.
  std::uint64_t copy_bytes() const { return kFootprint + nodes_.size() * kBytesPerNode; }
  // Replaces a node, or adds one behind all others. Of no other change of the client is `serial`.
  void Set(std::uint32_t number, std::shared_ptr<const GraphNode> node, std::uint64_t serial);

  // Launches taken and not finished.
  std::uint32_t launches() const { return launches_; }
  // The modules that its nodes need stay loaded until the launch has ended; see CommandScope.
  std::span<const std::uint16_t> modules() const { return modules_; }

  // CommandScope::losses when all nodes were last found to be allowed.
  std::uint64_t checked_at = ~std::uint64_t{0};
  void SetModules(std::vector<std::uint16_t> modules) { modules_ = std::move(modules); }

  // What its nodes may touch together, as of so many ClientBuffers::changes.
  device::Reach reach;
  std::optional<std::uint64_t> reach_as_of;

  // Nodes that the device takes alone, and whether there is one.
  std::vector<bool> alone;
  bool has_alone = false;
  // Predicted times of its nodes, as they were last looked up, and whether all are known.
  std::vector<scheduler::Duration> predicted;
  scheduler::Duration predicted_sum{};
  bool knows_all = false;
  std::uint64_t cuts = 0;  // Launches that were cut, since it became another graph.
  std::uint64_t cuts_ever = 0;
  // Measured times of launches that ran in one piece.
  scheduler::RecentSamples<19> whole;

 private:
  friend class ClientGraphs;
  std::uint32_t number_;
  std::uint64_t serial_ = 0;
  std::vector<std::shared_ptr<const GraphNode>> nodes_;
  std::vector<const device::GraphNode*> works_;
  std::vector<std::uint64_t> node_serials_;  // Serials of the changes that set them.
  std::vector<std::uint16_t> modules_;
  std::uint32_t launches_ = 0;
  bool is_retired_ = false;  // Changed or destroyed since launches took it.
  GraphCharge charge_;
};

// A client's graphs by their numbers.
//
// Confined to the device thread.
class ClientGraphs {
 public:
  // Graphs that were changed or destroyed while launches have them. While there are so many,
  // nothing is taken from the client.
  static constexpr std::uint32_t kRetiredMax = 8;

  explicit ClientGraphs(std::shared_ptr<GraphBudget> budget)
      : bytes_(std::make_shared<GraphBytes>(std::move(budget))) {}

  // Null where there is none.
  Graph* Find(std::uint32_t number) const {
    const auto found = graphs_.find(number);
    return found == graphs_.end() ? nullptr : found->second.get();
  }
  // The number is free.
  void Make(std::uint32_t number) { graphs_[number] = std::make_shared<Graph>(number, bytes_); }
  // There is one.
  void Destroy(std::uint32_t number);
  // There is one. Launches that have it keep it as it is.
  Graph& ToChange(std::uint32_t number);
  // There is one, and ToChange gave it.
  void Set(std::uint32_t number, std::uint32_t node, std::shared_ptr<const GraphNode> content);

  // A launch of it is taken, or has ended.
  std::shared_ptr<Graph> Take(std::uint32_t number);
  void Return(Graph& graph);

  bool MayTake() const { return retired_ < kRetiredMax; }
  // From now until nothing has the node, its bytes count.
  void Count(GraphNode& node) const { node.charge = GraphCharge(bytes_, node.footprint()); }
  // Host memory of all graphs and nodes, also of those that only launches still have.
  const GraphBytes& bytes() const { return *bytes_; }

 private:
  void Retire(Graph& graph);

  std::map<std::uint32_t, std::shared_ptr<Graph>> graphs_;
  // Nodes write to it, and the last launch may outlive this.
  const std::shared_ptr<GraphBytes> bytes_;
  std::uint64_t last_serial_ = 0;
  std::uint32_t retired_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_CLIENT_GRAPHS_H_
