// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_DRIVER_GRAPH_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_DRIVER_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/cuda/cuda_context.h"
#include "server/device/device.h"

namespace gpushared::device::cuda {

// A node of a client's graph with its own copy of the parameters, independent of the client's
// memory.
struct NodeCopy {
  // `version`: see GraphWork::node_versions.
  NodeCopy(const GraphNode& node, std::uint64_t version);
  NodeCopy(NodeCopy&&) = default;
  NodeCopy& operator=(NodeCopy&&) = default;

  GraphNode work;  // The parameters of a launch point to the next member.
  std::vector<std::byte> parameters;
  std::uint64_t version = 0;
};

// A client's graph as instantiated by the driver: one call launches all nodes, one after the other.
//
// Not thread-safe; calls may be made on different threads, one at a time. The context is current on
// the thread of each call.
class InstantiatedGraph {
 public:
  // Whether the work can be a node. Clusters and cooperative launches are excluded, because their
  // attributes are not passed to the driver here.
  static bool Takes(const GraphNode& node);

  // Takes a microsecond or more for each node. Work that the first launch would otherwise do is
  // done on `upload`. `nodes`: at least one.
  static Result<std::unique_ptr<InstantiatedGraph>> Make(CudaContext& context,
                                                         std::vector<NodeCopy> nodes,
                                                         Stream upload);
  InstantiatedGraph(const InstantiatedGraph&) = delete;
  InstantiatedGraph& operator=(const InstantiatedGraph&) = delete;
  // No launch of the graph may be in flight.
  ~InstantiatedGraph();

  // Maximum number of nodes that a launch may change. Changing a node takes about as long as
  // submitting a launch.
  static constexpr std::size_t kChangesMax = 256;
  enum class Change : std::uint8_t {
    kDone,     // Later launches use these nodes. Launches in flight are not affected.
    kTooMany,  // Nothing was changed.
    kOther,  // Needs a new instantiation: different number of nodes, different copies or fills, or
             // a kernel of another module.
  };
  Change Become(const GraphWork& work);
  // Appends the nodes of the work that differ from the instantiated ones, and all nodes that are
  // not launches. Returns false if the number of nodes differs.
  bool FindOthers(const GraphWork& work, std::vector<std::uint32_t>& others) const;
  Status Launch(Stream stream);

  std::size_t size() const { return nodes_.size(); }
  bool Uses(const device::Module& module) const;

 private:
  explicit InstantiatedGraph(CudaContext& context) : context_(context) {}
  Status AddNodes();
  Change FindChanges(const GraphWork& work, std::vector<std::size_t>& changed) const;
  Change ChangeNode(std::size_t number, const GraphNode& now);
  Status Instantiate(Stream upload);

  CudaContext& context_;
  std::vector<NodeCopy> nodes_;
  // Versions of the nodes; stored contiguously because all are compared.
  std::vector<std::uint64_t> versions_;
  std::vector<std::uint32_t> no_launches_;  // Numbers of non-launch nodes, ascending.
  std::vector<DriverNode> handles_;         // The driver's handles, parallel to nodes_.
  DriverGraph graph_ = nullptr;             // Kept because its nodes identify those of exec_.
  DriverExec exec_ = nullptr;
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_DRIVER_GRAPH_H_
