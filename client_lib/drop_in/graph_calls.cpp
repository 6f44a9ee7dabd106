// SPDX-License-Identifier: Apache-2.0
// Graphs, their nodes and edges.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/graph_book.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

template <typename Use>
Code WithGraph(GraphHandle handle, const Use& use) {
  GraphBook book;
  if (!book.ok()) return book.code();
  const std::shared_ptr<Graph> graph = book.Find(handle);
  return graph == nullptr ? Code::kInvalidValue : use(book, graph);
}

template <typename Use>
Code WithNode(GraphNodeHandle handle, const Use& use) {
  GraphBook book;
  if (!book.ok()) return book.code();
  const std::shared_ptr<GraphNode> node = book.Find(handle);
  return node == nullptr ? Code::kInvalidValue : use(book, *node);
}

struct Edge {
  GraphNode* from;
  GraphNode* to;
};
// Appends an edge for each pair of handles in the two lists. kInvalidValue if a handle is not a
// node of this graph, or if both handles of a pair are the same node.
Code FindEdges(const GraphBook& book, const Graph& graph, const GraphNodeHandle* from,
               const GraphNodeHandle* to, const EdgeData* data, std::size_t count,
               std::vector<Edge>& edges) {
  if (count != 0 && AnyNull(from, to)) return Code::kInvalidValue;
  for (std::size_t i = 0; i < count; ++i) {
    const std::shared_ptr<GraphNode> first = book.Find(from[i]);
    const std::shared_ptr<GraphNode> second = book.Find(to[i]);
    if (first == nullptr || second == nullptr || first == second) return Code::kInvalidValue;
    if (first->graph != &graph || second->graph != &graph) return Code::kInvalidValue;
    edges.push_back({first.get(), second.get()});
  }
  return CheckEdges(data, count);
}

bool Has(const Edge& edge) {
  return std::ranges::find(edge.to->needs, edge.from) != edge.to->needs.end();
}

void PutUsualEdges(EdgeData* data, std::size_t count) {
  if (data != nullptr) std::fill_n(data, count, EdgeData{});
}

// Returns the error for the removal of a node or an edge from a graph with memory, as in CUDA.
Code RejectLossOfNodes() {
  return Reject(Code::kNotSupported,
                "rejected: a graph that allocates or frees memory must keep its nodes and edges");
}

constexpr const char* kTypeNames[] = {"KERNEL",    "MEMCPY",  "MEMSET",     "HOST",
                                      "GRAPH",     "EMPTY",   "WAIT_EVENT", "EVENT_RECORD",
                                      "MEM_ALLOC", "MEM_FREE"};

// Returns the node and its edges in Graphviz syntax.
std::string GetDot(const GraphNode& node) {
  const std::string name = "\"node " + std::to_string(node.id) + "\"";
  std::string label = kTypeNames[node.work->index()];
  if (const auto* const launch = std::get_if<KernelWork>(node.work.get())) {
    const std::shared_ptr<CudaKernel> kernel = Driver::Get().kernels.Find(launch->function);
    label += kernel == nullptr ? "\\nunloaded" : "\\n" + kernel->name;
  }
  std::string text = "  " + name + " [label=\"" + label + "\"];\n";
  for (const GraphNode* need : node.needs) {
    text += "  \"node " + std::to_string(need->id) + "\" -> " + name + ";\n";
  }
  return text;
}

}  // namespace

// ---- graphs

Code GraphCreate(GraphHandle* handle, unsigned flags) {
  if (AnyNull(handle) || flags != 0) return Code::kInvalidValue;
  GraphBook book;
  if (!book.ok()) return book.code();
  *handle = book.GetHandle(std::make_shared<Graph>());
  return *handle == nullptr ? Code::kOutOfMemory : Code::kSuccess;
}

Code GraphDestroy(GraphHandle handle) {
  return WithGraph(handle, [](GraphBook& book, const std::shared_ptr<Graph>& graph) {
    if (graph->is_suspended) {
      return Reject(Code::kInvalidValue, "the graph is inside another one, or being captured");
    }
    book.DropHandles(*graph);
    return Code::kSuccess;
  });
}

Code GraphClone(GraphHandle* clone, GraphHandle handle) {
  if (AnyNull(clone)) return Code::kInvalidValue;
  return WithGraph(handle, [&](GraphBook& book, const std::shared_ptr<Graph>& graph) {
    if (graph->has_memory()) return RejectCopyWithMemory();
    *clone = book.GetHandle(graph->Clone());
    return *clone == nullptr ? Code::kOutOfMemory : Code::kSuccess;
  });
}

Code GraphNodeFindInClone(GraphNodeHandle* found, GraphNodeHandle original, GraphHandle clone) {
  if (AnyNull(found)) return Code::kInvalidValue;
  return WithGraph(clone, [&](GraphBook& book, const std::shared_ptr<Graph>& graph) {
    const std::shared_ptr<GraphNode> node = book.Find(original);
    GraphNode* const copy = node == nullptr ? nullptr : graph->FindOriginal(node->id);
    if (copy == nullptr) return Code::kInvalidValue;
    *found = book.GetHandle(*copy);
    return *found == nullptr ? Code::kOutOfMemory : Code::kSuccess;
  });
}

// Writes the kind of each node and the name of a kernel, regardless of the flags.
Code GraphDebugDotPrint(GraphHandle handle, const char* path, unsigned) {
  if (AnyNull(path)) return Code::kInvalidValue;
  std::string text = "digraph {\n";
  const Code code = WithGraph(handle, [&](GraphBook&, const std::shared_ptr<Graph>& graph) {
    for (const auto& node : graph->nodes()) text += GetDot(*node);
    return Code::kSuccess;
  });
  if (code != Code::kSuccess) return code;
  text += "}\n";
  std::FILE* const file = std::fopen(path, "we");
  if (file == nullptr) return Reject(Code::kOperatingSystem, "the file cannot be written");
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && is_written ? Code::kSuccess : Code::kOperatingSystem;
}

// ---- contents

Code GraphGetNodes(GraphHandle handle, GraphNodeHandle* list, std::size_t* count) {
  if (AnyNull(count)) return Code::kInvalidValue;
  return WithGraph(handle, [&](GraphBook& book, const std::shared_ptr<Graph>& graph) {
    std::vector<GraphNode*> nodes;
    for (const auto& node : graph->nodes()) nodes.push_back(node.get());
    return book.Show(nodes, list, count);
  });
}

Code GraphGetRootNodes(GraphHandle handle, GraphNodeHandle* list, std::size_t* count) {
  if (AnyNull(count)) return Code::kInvalidValue;
  return WithGraph(handle, [&](GraphBook& book, const std::shared_ptr<Graph>& graph) {
    std::vector<GraphNode*> nodes;
    for (const auto& node : graph->nodes()) {
      if (node->needs.empty()) nodes.push_back(node.get());
    }
    return book.Show(nodes, list, count);
  });
}

Code GraphGetEdgesV2(GraphHandle handle, GraphNodeHandle* from, GraphNodeHandle* to, EdgeData* data,
                     std::size_t* count) {
  if (AnyNull(count) || (from == nullptr) != (to == nullptr)) return Code::kInvalidValue;
  return WithGraph(handle, [&](GraphBook& book, const std::shared_ptr<Graph>& graph) {
    std::vector<GraphNode*> first, second;
    for (const auto& node : graph->nodes()) {
      for (GraphNode* need : node->needs) {
        first.push_back(need);
        second.push_back(node.get());
      }
    }
    std::size_t room = *count;
    Code code = book.Show(first, from, &room);
    if (code == Code::kSuccess) code = book.Show(second, to, count);
    if (from != nullptr) PutUsualEdges(data, *count);
    return code;
  });
}

Code GraphGetEdges(GraphHandle graph, GraphNodeHandle* from, GraphNodeHandle* to,
                   std::size_t* count) {
  return GraphGetEdgesV2(graph, from, to, nullptr, count);
}

Code GraphNodeGetDependenciesV2(GraphNodeHandle handle, GraphNodeHandle* list, EdgeData* data,
                                std::size_t* count) {
  if (AnyNull(count)) return Code::kInvalidValue;
  return WithNode(handle, [&](GraphBook& book, const GraphNode& node) {
    const Code code = book.Show(node.needs, list, count);
    if (list != nullptr) PutUsualEdges(data, *count);
    return code;
  });
}

Code GraphNodeGetDependencies(GraphNodeHandle node, GraphNodeHandle* list, std::size_t* count) {
  return GraphNodeGetDependenciesV2(node, list, nullptr, count);
}

Code GraphNodeGetDependentNodesV2(GraphNodeHandle handle, GraphNodeHandle* list, EdgeData* data,
                                  std::size_t* count) {
  if (AnyNull(count)) return Code::kInvalidValue;
  return WithNode(handle, [&](GraphBook& book, GraphNode& node) {
    std::vector<GraphNode*> followers;
    for (const auto& other : node.graph->nodes()) {
      if (Has({&node, other.get()})) followers.push_back(other.get());
    }
    const Code code = book.Show(followers, list, count);
    if (list != nullptr) PutUsualEdges(data, *count);
    return code;
  });
}

Code GraphNodeGetDependentNodes(GraphNodeHandle node, GraphNodeHandle* list, std::size_t* count) {
  return GraphNodeGetDependentNodesV2(node, list, nullptr, count);
}

Code GraphNodeGetType(GraphNodeHandle handle, int* type) {
  if (AnyNull(type)) return Code::kInvalidValue;
  return WithNode(handle, [&](GraphBook&, const GraphNode& node) {
    *type = GetType(*node.work);
    return Code::kSuccess;
  });
}

Code GraphNodeGetContainingGraph(GraphNodeHandle handle, GraphHandle* graph) {
  if (AnyNull(graph)) return Code::kInvalidValue;
  return WithNode(handle, [&](GraphBook& book, const GraphNode& node) {
    *graph = book.GetHandle(node.graph->shared_from_this());
    return *graph == nullptr ? Code::kOutOfMemory : Code::kSuccess;
  });
}

// ---- numbers; cuGraphDebugDotPrint shows those of nodes

Code GraphNodeGetLocalId(GraphNodeHandle handle, unsigned* id) {
  if (AnyNull(id)) return Code::kInvalidValue;
  return WithNode(handle, [&](GraphBook&, const GraphNode& node) {
    *id = static_cast<unsigned>(node.id);
    return Code::kSuccess;
  });
}

Code GraphNodeGetToolsId(GraphNodeHandle handle, unsigned long long* id) {
  if (AnyNull(id)) return Code::kInvalidValue;
  return WithNode(handle, [&](GraphBook&, const GraphNode& node) {
    *id = node.id;
    return Code::kSuccess;
  });
}

Code GraphGetId(GraphHandle handle, unsigned* id) {
  if (AnyNull(id)) return Code::kInvalidValue;
  return WithGraph(handle, [&](GraphBook&, const std::shared_ptr<Graph>& graph) {
    *id = static_cast<unsigned>(graph->id());
    return Code::kSuccess;
  });
}

// ---- changes

// Adds all edges, or none if one is invalid.
Code GraphAddDependenciesV2(GraphHandle handle, const GraphNodeHandle* from,
                            const GraphNodeHandle* to, const EdgeData* data, std::size_t count) {
  return WithGraph(handle, [&](GraphBook& book, const std::shared_ptr<Graph>& graph) {
    std::vector<Edge> edges;
    const Code code = FindEdges(book, *graph, from, to, data, count, edges);
    if (code != Code::kSuccess) return code;
    for (auto edge = edges.begin(); edge != edges.end(); ++edge) {
      if (!Has(*edge)) {
        edge->to->needs.push_back(edge->from);
        continue;
      }
      for (auto added = edges.begin(); added != edge; ++added) added->to->needs.pop_back();
      return Reject(Code::kInvalidValue, "the edge already exists");
    }
    return Code::kSuccess;
  });
}

Code GraphAddDependencies(GraphHandle graph, const GraphNodeHandle* from, const GraphNodeHandle* to,
                          std::size_t count) {
  return GraphAddDependenciesV2(graph, from, to, nullptr, count);
}

Code GraphRemoveDependenciesV2(GraphHandle handle, const GraphNodeHandle* from,
                               const GraphNodeHandle* to, const EdgeData* data, std::size_t count) {
  return WithGraph(handle, [&](GraphBook& book, const std::shared_ptr<Graph>& graph) {
    std::vector<Edge> edges;
    const Code code = FindEdges(book, *graph, from, to, data, count, edges);
    if (code != Code::kSuccess) return code;
    if (!std::ranges::all_of(edges, &Has)) return Code::kInvalidValue;
    if (graph->has_memory()) return RejectLossOfNodes();
    for (const Edge& edge : edges) std::erase(edge.to->needs, edge.from);
    return Code::kSuccess;
  });
}

Code GraphRemoveDependencies(GraphHandle graph, const GraphNodeHandle* from,
                             const GraphNodeHandle* to, std::size_t count) {
  return GraphRemoveDependenciesV2(graph, from, to, nullptr, count);
}

Code GraphDestroyNode(GraphNodeHandle handle) {
  return WithNode(handle, [](GraphBook& book, GraphNode& node) {
    if (node.graph->has_memory()) return RejectLossOfNodes();
    book.DropHandle(node);
    node.graph->Remove(node);
    return Code::kSuccess;
  });
}

}  // namespace gpushared::drop_in
