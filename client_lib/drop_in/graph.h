// SPDX-License-Identifier: Apache-2.0
// Graphs of work as data, without a driver. GraphsMutex guards all graphs and their parts, except
// objects that are constant.

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

// Guards all graphs and captures of the process. CUDA requires programs to use a graph in one
// thread at a time; with this lock, a program that violates the rule does not corrupt the library.
// Not held during commands.
Mutex& GraphsMutex();

// Launch with a copy of its parameters. Each launch of the graph looks the kernel up, because a
// graph may outlive the module and the session.
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
  std::shared_ptr<Graph> graph;  // Belongs only to the node that has this work.
};
struct EmptyWork {};
struct EventWaitWork {
  EventHandle event = nullptr;
};
struct EventRecordWork {
  EventHandle event = nullptr;
};

struct AllocateWork {
  MemoryNodeParameters parameters;  // Contains the address, but not the access list.
  std::shared_ptr<GraphMemory> memory;
};
struct FreeWork {
  DevicePointer address = 0;
};

// Object of the program that graphs keep alive. The program's destroy function runs on a thread of
// this library once the last reference is released.
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
// References to one object that are released together.
struct UserReferences {
  std::shared_ptr<UserObject> object;  // Null if there are none.
  std::uint64_t count = 0;
  std::weak_ptr<UserObject> known;  // The handle's object while any reference to the object exists.
};

// Alternatives in the order of CUgraphNodeType, without semaphores. Work is constant once it is in
// a node, so that launches need no copy of it.
using Work = std::variant<KernelWork, CopyWork, FillWork, HostWork, ChildWork, EmptyWork,
                          EventWaitWork, EventRecordWork, AllocateWork, FreeWork>;
// CUgraphNodeType of AllocateWork and FreeWork.
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
  std::uint64_t id = 0;           // Never reused.
  std::uint64_t original_id = 0;  // Node that a clone was made from; 0 if none.
  Graph* graph = nullptr;         // Null once the node is destroyed.
  std::shared_ptr<const Work> work;
  std::vector<GraphNode*> needs;     // Dependencies in the same graph; they run first.
  bool is_enabled = true;            // Whether launches of an executable graph run the node.
  GraphNodeHandle handle = nullptr;  // Created when the program first requests the handle.
  std::vector<void*> shown;          // Kernel parameters that the program last requested.
};

// Nodes and their order. Must be owned by a shared pointer.
class Graph : public std::enable_shared_from_this<Graph> {
 public:
  // Limit of the depth of nesting. Exists because the library traverses nested graphs recursively.
  static constexpr std::size_t kDepthMax = 64;

  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::uint64_t id() const { return id_; }  // Never reused.
  // Nodes in the order in which they were added.
  std::span<const std::shared_ptr<GraphNode>> nodes() const { return nodes_; }
  std::size_t depth() const;  // 1 without nested graphs.
  // Whether a node allocates or frees memory. Such a graph has neither clones nor a second
  // executable graph, because both would use the same memory.
  bool has_memory() const;
  // Whether a node frees the memory that begins at `address`.
  bool Frees(DevicePointer address) const;

  // `needs` are nodes of this graph.
  std::shared_ptr<GraphNode> Add(Work work, std::vector<GraphNode*> needs);
  // Removes a node from the graph and from the dependencies of other nodes.
  std::shared_ptr<GraphNode> Remove(GraphNode& node);
  // Returns a copy whose nodes refer to those of this graph.
  std::shared_ptr<Graph> Clone() const;
  // Returns the node that was cloned from the one with this number, here or in a nested graph; null
  // if there is none.
  GraphNode* FindOriginal(std::uint64_t id) const;
  // Returns whether `early` is `late` or one of its direct or indirect dependencies.
  static bool Precedes(const GraphNode& early, const GraphNode& late);
  // Replaces the work of each node by that of the corresponding node of `from`. Nodes correspond in
  // the order in which they were added to their graphs. If the structures of the graphs differ,
  // nothing changes.
  struct Updated {
    UpdateOutcome outcome = UpdateOutcome::kSuccess;
    GraphNode* node = nullptr;  // First node of `from` that differs.
  };
  Updated Update(const Graph& from);
  // Returns the nodes in an order in which dependencies come first, otherwise as they were added.
  // No value if the dependencies form a cycle, here or in a nested graph.
  std::optional<std::vector<GraphNode*>> Order() const;

  // Objects that this graph and its clones keep alive.
  std::map<const UserObject*, UserReferences> user_objects;
  GraphHandle handle = nullptr;
  // The only executable graph of a graph with memory; null for other graphs.
  std::weak_ptr<GraphExec> instance;
  // Whether the graph is nested in another graph or being captured, so that the program cannot
  // destroy it.
  bool is_suspended = false;
  // Whether the graph is being captured; other graphs may still be added to it.
  bool is_captured = false;

 private:
  Updated Compare(const Graph& other) const;
  void Take(const Graph& from);

  const std::uint64_t id_;
  std::vector<std::shared_ptr<GraphNode>> nodes_;
};

// Executable graph: a copy that the program addresses by the nodes of the original.
class GraphExec {
 public:
  // All work of a launch, in order. Constant.
  using Plan = std::vector<std::shared_ptr<const Work>>;

  // Returns null if the dependencies form a cycle.
  static std::unique_ptr<GraphExec> Make(const Graph& graph, std::uint64_t flags);

  std::uint64_t flags() const { return flags_; }
  Graph& graph() const { return *graph_; }
  // Returns the copy of a node of the original; null if there is none.
  GraphNode* NodeFor(const GraphNode& original) const { return graph_->FindOriginal(original.id); }
  // Must be called after nodes have changed.
  void ForgetPlan() { plan_ = nullptr; }
  std::shared_ptr<const Plan> plan();

  // Created by the first launch.
  std::shared_ptr<ServerGraphs> server_graphs;
  // Whether there was a launch, and its stream. The next launch waits for it, even in another
  // stream.
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
