// SPDX-License-Identifier: Apache-2.0
// Access to graphs by their handles.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GRAPH_BOOK_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GRAPH_BOOK_H_

#include <memory>
#include <span>
#include <vector>

#include "gpushared/mutex.h"

#include "client_lib/drop_in/driver.h"
#include "client_lib/drop_in/driver_types.h"
#include "client_lib/drop_in/graph.h"

namespace gpushared::drop_in {

// Returns kNotSupported for edges that let later work start before earlier work has ended.
Code CheckEdges(const EdgeData* edges, std::size_t count);

// Returns kNotSupported, because a graph with memory cannot be copied.
Code RejectCopyWithMemory();

// Holds GraphsMutex during a call about graphs. Such calls need no context.
class GPUSHARED_SCOPED_CAPABILITY GraphBook {
 public:
  GraphBook() GPUSHARED_ACQUIRE(GraphsMutex())
      : driver_(Driver::Get()), code_(driver_.Ready()), lock_(GraphsMutex()) {}
  ~GraphBook() GPUSHARED_RELEASE() = default;
  GraphBook(const GraphBook&) = delete;
  GraphBook& operator=(const GraphBook&) = delete;

  // Returns kSuccess, or why there is no driver.
  Code code() const { return code_; }
  bool ok() const { return code_ == Code::kSuccess; }

  // Returns null for an invalid or stale handle.
  std::shared_ptr<Graph> Find(GraphHandle handle) const { return driver_.graphs.Find(handle); }
  std::shared_ptr<GraphNode> Find(GraphNodeHandle handle) const;
  std::shared_ptr<GraphExec> Find(GraphExecHandle handle) const {
    return driver_.graph_execs.Find(handle);
  }
  // Dependencies of a node.
  struct Dependencies {
    const GraphNodeHandle* handles = nullptr;
    const EdgeData* edges = nullptr;  // Null if no edge has data.
    std::size_t count = 0;
  };
  // Appends the nodes of `needs` to `nodes`. kInvalidValue if a handle is not of a node of this
  // graph or occurs twice; errors of CheckEdges.
  Code FindNodes(const Graph& graph, const Dependencies& needs,
                 std::vector<GraphNode*>& nodes) const;

  // Returns the program's handle of a graph or node, created on demand; null if no handle is left.
  GraphHandle GetHandle(const std::shared_ptr<Graph>& graph);
  GraphNodeHandle GetHandle(GraphNode& node);
  // Releases the handles of a graph that ends, of its nodes, and of nested graphs.
  void DropHandles(Graph& graph);
  void DropHandle(GraphNode& node);

  // Returns a list to the program as CUDA does: `count` is its capacity on entry and its length on
  // return. If `list` is null, returns only the length.
  Code Show(std::span<GraphNode* const> nodes, GraphNodeHandle* list, std::size_t* count);

 private:
  Driver& driver_;
  const Code code_;
  const MutexLock lock_;
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GRAPH_BOOK_H_
