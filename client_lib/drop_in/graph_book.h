// SPDX-License-Identifier: Apache-2.0
// Graphs by their handles.

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

// kNotSupported where an edge is special: later work may then start before earlier work has ended.
Code CheckEdges(const EdgeData* edges, std::size_t count);

// kNotSupported: a graph with memory has no copies.
Code RejectCopyWithMemory();

// Holds GraphsMutex. Calls about graphs need no context.
class GPUSHARED_SCOPED_CAPABILITY GraphBook {
 public:
  GraphBook() GPUSHARED_ACQUIRE(GraphsMutex())
      : driver_(Driver::Get()), code_(driver_.Ready()), lock_(GraphsMutex()) {}
  ~GraphBook() GPUSHARED_RELEASE() = default;
  GraphBook(const GraphBook&) = delete;
  GraphBook& operator=(const GraphBook&) = delete;

  // Why there is no driver.
  Code code() const { return code_; }
  bool ok() const { return code_ == Code::kSuccess; }

  // Null for a handle that is wild or stale.
  std::shared_ptr<Graph> Find(GraphHandle handle) const { return driver_.graphs.Find(handle); }
  std::shared_ptr<GraphNode> Find(GraphNodeHandle handle) const;
  std::shared_ptr<GraphExec> Find(GraphExecHandle handle) const {
    return driver_.graph_execs.Find(handle);
  }
  // Nodes that another one needs.
  struct Needs {
    const GraphNodeHandle* handles = nullptr;
    const EdgeData* edges = nullptr;  // Null: nothing special about them.
    std::size_t count = 0;
  };
  // The nodes of this graph, each once. kInvalidValue where a handle is not of one.
  Code FindNodes(const Graph& graph, const Needs& needs, std::vector<GraphNode*>& nodes) const;

  // The handle that programs know it by, made when it is needed; null: there is no room.
  GraphHandle GetHandle(const std::shared_ptr<Graph>& graph);
  GraphNodeHandle GetHandle(GraphNode& node);
  // Takes back the handles of a graph that ends, its nodes, and the graphs inside.
  void DropHandles(Graph& graph);
  void DropHandle(GraphNode& node);

  // Gives a list to the program as CUDA does: `count` is its room, and becomes its length. Without
  // `list` only the length.
  Code Show(std::span<GraphNode* const> nodes, GraphNodeHandle* list, std::size_t* count);

 private:
  Driver& driver_;
  const Code code_;
  const MutexLock lock_;
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GRAPH_BOOK_H_
