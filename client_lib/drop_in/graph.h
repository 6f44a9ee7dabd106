// SPDX-License-Identifier: Apache-2.0
// Graphs of work: what they hold, without a driver. GraphsMutex guards all of it, except where a
// type is constant.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GRAPH_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "gpushared/client.h"
#include "gpushared/mutex.h"

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

class CudaStream;
class Graph;
class GraphExec;
class GraphMemory;
class ServerGraphs;

// One for all graphs and captures of the process. CUDA leaves it to programs to use a graph in one
// thread at a time. Here a program that does not stays whole. Held for no command.
Mutex& GraphsMutex();

// A launch with its parameters copied. The kernel is looked up by each launch of the graph: a graph
// outlives the module, and the session.
struct KernelWork {
  FunctionHandle function = nullptr;
  LaunchShape shape;
  std::vector<std::byte> packed;
  std::vector<KernelParameter> layout;
};
struct CopyWork {
  Copy3d copy;
};
struct FillWork {
  FillNodeParameters fill;
};
struct HostWork {
  HostNodeParameters host;
};
struct ChildWork {
  std::shared_ptr<Graph> graph;  // This node's own.
};
struct EmptyWork {};
struct EventWaitWork {
  EventHandle event = nullptr;
};
struct EventRecordWork {
  EventHandle event = nullptr;
};

struct AllocateWork {
  MemoryNodeParameters parameters;  // With the address, without a list of who may access it.
  std::shared_ptr<GraphMemory> memory;
};
struct FreeWork {
  DevicePointer address = 0;
};

// Something of the program's that graphs keep alive. Its function runs when nobody refers to it any
// more, on a thread of this library.
class UserObject {
 public:
  UserObject(HostFunction destroy, void* data) : destroy_(destroy), data_(data) {}
  ~UserObject();
  UserObject(const UserObject&) = delete;
  UserObject& operator=(const UserObject&) = delete;

 private:
  const HostFunction destroy_;
  void* const data_;
};
// References to one, which go together.
struct UserReferences {
  std::shared_ptr<UserObject> object;  // Null where there are none.
  std::uint64_t count = 0;
  std::weak_ptr<UserObject> known;  // A handle's object, as long as anybody refers to it.
};

// In the order of CUgraphNodeType, without semaphores. Constant once it is in a node, so that
// launches need no copy.
using Work = std::variant<KernelWork, CopyWork, FillWork, HostWork, ChildWork, EmptyWork,
                          EventWaitWork, EventRecordWork, AllocateWork, FreeWork>;
// CUgraphNodeType of these.
inline constexpr int kTypeAllocate = 10;
inline constexpr int kTypeFree = 11;
int GetType(const Work& work);

// CUgraphExecUpdateResult.
enum class UpdateOutcome : int {
  kSuccess = 0,
  kTopologyChanged = 2,
  kNodeTypeChanged = 3,
  kParametersChanged = 5,
  kAttributesChanged = 8,
};

struct GraphNode : std::enable_shared_from_this<GraphNode> {
  std::uint64_t id = 0;           // No number is used again.
  std::uint64_t original_id = 0;  // Of the node that a clone stands for; 0: none.
  Graph* graph = nullptr;         // Null once the node is destroyed.
  std::shared_ptr<const Work> work;
  std::vector<GraphNode*> needs;     // Of the same graph. Those run first.
  bool is_enabled = true;            // In an executable graph.
  GraphNodeHandle handle = nullptr;  // Made when a program asks for it.
  std::vector<void*> shown;          // The parameters that a program was shown last.
};

// Nodes and their order. Lives in a shared pointer.
class Graph : public std::enable_shared_from_this<Graph> {
 public:
  // Graphs inside graphs. A deeper one is rejected: the library walks them by calling itself.
  static constexpr std::size_t kDepthMax = 64;

  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::uint64_t id() const { return id_; }  // No number is used again.
  // In the order in which they were added.
  std::span<const std::shared_ptr<GraphNode>> nodes() const { return nodes_; }
  std::size_t depth() const;  // 1 without graphs inside.
  // A node allocates or frees. So there is no second graph that does the same: neither a clone nor
  // another executable one.
  bool has_memory() const;
  // A node frees what begins there.
  bool Frees(DevicePointer address) const;

  // `needs`: nodes of this graph.
  std::shared_ptr<GraphNode> Add(Work work, std::vector<GraphNode*> needs);
  // Nodes that need it need it no longer.
  std::shared_ptr<GraphNode> Remove(GraphNode& node);
  // Its nodes stand for those of this graph.
  std::shared_ptr<Graph> Clone() const;
  // The node that stands for the one of this number, here or in a graph inside; null: none.
  GraphNode* FindOriginal(std::uint64_t id) const;
  // Whether node `early` runs before `late`, or is it, because one needs the other.
  static bool Precedes(const GraphNode& early, const GraphNode& late);
  // Its nodes do what those of a graph of the same structure do, in the order in which both were
  // added. Where that cannot be, nothing changes.
  struct Updated {
    UpdateOutcome outcome = UpdateOutcome::kSuccess;
    GraphNode* node = nullptr;  // Where `from` differs first.
  };
  Updated Update(const Graph& from);
  // The nodes, each after those that it needs, else as they were added. Nothing where nodes need
  // each other in a circle, here or in a graph inside.
  std::optional<std::vector<GraphNode*>> Order() const;

  // What it keeps alive; clones do, too.
  std::map<const UserObject*, UserReferences> user_objects;
  GraphHandle handle = nullptr;
  // The executable graph, of those with memory.
  std::weak_ptr<GraphExec> instance;
  // It is inside another graph, or is being captured: the program cannot destroy it.
  bool is_suspended = false;
  // By a capture, not by a node: other graphs may still be put into it.
  bool is_captured = false;

 private:
  Updated Compare(const Graph& other) const;
  void Take(const Graph& from);

  const std::uint64_t id_;
  std::vector<std::shared_ptr<GraphNode>> nodes_;
};

// A graph that can run: a copy that the program reaches by the nodes of the original.
class GraphExec {
 public:
  // All work of a launch, in its order. Constant.
  using Plan = std::vector<std::shared_ptr<const Work>>;

  // Null where nodes need each other in a circle.
  static std::unique_ptr<GraphExec> Make(const Graph& graph, std::uint64_t flags);

  std::uint64_t flags() const { return flags_; }
  Graph& graph() const { return *graph_; }
  const std::shared_ptr<Graph>& shared_graph() const { return graph_; }
  // The copy of an original's node; null: none.
  GraphNode* NodeFor(const GraphNode& original) const { return graph_->FindOriginal(original.id); }
  // To be called after nodes have changed.
  void ForgetPlan() { plan_ = nullptr; }
  std::shared_ptr<const Plan> plan();

  // Made by its first launch.
  std::shared_ptr<ServerGraphs> server_graphs;
  // A launch waits for the launch before it, which may have been in another stream.
  bool has_launched = false;
  std::weak_ptr<CudaStream> last_stream;

 private:
  GraphExec(std::shared_ptr<Graph> graph, std::uint64_t flags)
      : graph_(std::move(graph)), flags_(flags) {}

  const std::shared_ptr<Graph> graph_;
  const std::uint64_t flags_;
  std::shared_ptr<const Plan> plan_;
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GRAPH_H_
