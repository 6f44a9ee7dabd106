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

// A node of a client's graph with bytes of its own, whatever becomes of the client's.
struct NodeCopy {
  // `version`: see GraphWork::node_versions.
  NodeCopy(const GraphNode& node, std::uint64_t version);
  NodeCopy(NodeCopy&&) = default;
  NodeCopy& operator=(NodeCopy&&) = default;

  GraphNode work;  // A launch's parameters are the next member's bytes.
  std::vector<std::byte> parameters;
  std::uint64_t version = 0;
};

// A client's graph as the driver has it: one call launches all of its nodes, one after the other.
//
// Made on any thread, then its owner's. The context is current on the thread of each call.
class InstantiatedGraph {
 public:
  // Whether it can be a node. The driver runs clusters and cooperative launches as well; their
  // attributes are not passed on here.
  static bool Takes(const GraphNode& node);

  // Takes a microsecond or more for each node. What a first launch would do besides is done on
  // `upload`. `nodes`: at least one.
  static Result<std::unique_ptr<InstantiatedGraph>> Make(CudaContext& context,
                                                         std::vector<NodeCopy> nodes,
                                                         Stream upload);
  InstantiatedGraph(const InstantiatedGraph&) = delete;
  InstantiatedGraph& operator=(const InstantiatedGraph&) = delete;
  // No launch of it is with the driver.
  ~InstantiatedGraph();

  // Nodes that a launch changes at most: about as long as it takes to submit so many launches. No
  // others are compared, and a node has at most 4 KiB of parameters.
  static constexpr std::size_t kChangesMax = 256;
  enum class Change : std::uint8_t {
    kDone,     // Later launches run these nodes. Those that the driver has are not affected.
    kTooMany,  // Nothing was changed.
    kOther,    // It takes another instantiation: another number of nodes, another copy or fill, a
               // kernel of another module.
  };
  Change Become(const GraphWork& work);
  // Appends the nodes of the work that are others than those it runs, and all that are no launches.
  // False: it is of another number of nodes.
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
  std::vector<std::uint64_t> versions_;     // Of the nodes; side by side, since all are looked at.
  std::vector<std::uint32_t> no_launches_;  // Their numbers, ascending.
  std::vector<DriverNode> handles_;         // The driver's, in the same order.
  DriverGraph graph_ = nullptr;             // Its nodes name those of the other one.
  DriverExec exec_ = nullptr;
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_DRIVER_GRAPH_H_
