// SPDX-License-Identifier: Apache-2.0
// Work of graph nodes: creation, queries and changes, in graphs and executable graphs.
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/graph_book.h"
#include "client_lib/drop_in/graph_work.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

using Dependencies = GraphBook::Dependencies;

// ---- work from the parameters of programs

Code MakeWork(const KernelNodeParametersV1* given, Work& work) {
  if (AnyNull(given)) return Code::kInvalidValue;
  KernelWork launch;
  const LaunchShape shape{.grid = {given->grid_x, given->grid_y, given->grid_z},
                          .block = {given->block_x, given->block_y, given->block_z},
                          .dynamic_shared_bytes = given->shared_bytes};
  const Code code = MakeKernelWork(given->function, shape, given->parameters, given->extra, launch);
  work = std::move(launch);
  return code;
}

Code MakeWork(const KernelNodeParameters* given, Work& work) {
  if (AnyNull(given)) return Code::kInvalidValue;
  KernelNodeParametersV1 launch = given->launch;
  if (launch.function == nullptr) {
    launch.function = reinterpret_cast<FunctionHandle>(given->kernel);
  }
  return MakeWork(&launch, work);
}

Code MakeWork(const Copy3d* given, Work& work) {
  if (AnyNull(given)) return Code::kInvalidValue;
  work = CopyWork{*given};
  return CheckShape(*given);
}

Code MakeWork(const FillNodeParameters* given, Work& work) {
  if (AnyNull(given)) return Code::kInvalidValue;
  work = FillWork{*given};
  return CheckShape(*given);
}

Code MakeWork(const HostNodeParameters* given, Work& work) {
  if (AnyNull(given) || given->function == nullptr) return Code::kInvalidValue;
  work = HostWork{*given};
  return Code::kSuccess;
}

Code MakeWork(const EventWaitWork& given, Work& work) {
  work = given;
  return Driver::Get().events.Find(given.event) == nullptr ? Code::kInvalidValue : Code::kSuccess;
}

Code MakeWork(const EventRecordWork& given, Work& work) {
  work = given;
  return Driver::Get().events.Find(given.event) == nullptr ? Code::kInvalidValue : Code::kSuccess;
}

Code MakeWork(const EmptyWork& given, Work& work) {
  work = given;
  return Code::kSuccess;
}

Code MakeWork(const AllocateWork& given, Work& work) {
  work = given;
  return Code::kSuccess;
}

Code MakeWork(const FreeWork& given, Work& work) {
  work = given;
  return Code::kSuccess;
}

// The node owns a copy of the graph.
Code MakeWork(GraphHandle given, Work& work) {
  GraphBook book;
  if (!book.ok()) return book.code();
  const std::shared_ptr<Graph> graph = book.Find(given);
  if (graph == nullptr) return Code::kInvalidValue;
  if (graph->has_memory()) return RejectCopyWithMemory();
  if (graph->depth() >= Graph::kDepthMax) {
    return Reject(Code::kInvalidValue, "node rejected: graphs would be nested more than 64 deep");
  }
  std::shared_ptr<Graph> own = graph->Clone();
  own->is_suspended = true;
  work = ChildWork{std::move(own)};
  return Code::kSuccess;
}

Code MakeWork(const NodeParameters* given, Work& work) {
  if (AnyNull(given)) return Code::kInvalidValue;
  switch (given->type) {
    case 0:
      return MakeWork(&given->kernel, work);
    case 1:
      return MakeWork(&given->copy.copy, work);
    case 2:
      return MakeWork(&given->fill, work);
    case 3:
      return MakeWork(&given->host, work);
    case 4:
      if (given->child.ownership != 0) {
        return Reject(Code::kNotSupported, "node rejected: a nested graph must be a copy");
      }
      return MakeWork(given->child.graph, work);
    case 5:
      return MakeWork(EmptyWork{}, work);
    case 6:
      return MakeWork(EventWaitWork{given->event}, work);
    case 7:
      return MakeWork(EventRecordWork{given->event}, work);
    default:
      return Reject(Code::kNotSupported,
                    "node rejected: semaphore and conditional nodes are not supported, and memory "
                    "nodes cannot be changed");
  }
}

// ---- nodes with such work

template <typename Given>
Code Add(GraphNodeHandle* handle, GraphHandle graph_handle, const Dependencies& needs,
         const Given& given) {
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  if (AnyNull(handle)) return Code::kInvalidValue;
  Work work;
  if (const Code code = MakeWork(given, work); code != Code::kSuccess) return code;
  GraphBook book;
  const std::shared_ptr<Graph> graph = book.Find(graph_handle);
  if (graph == nullptr) return Code::kInvalidValue;
  if (graph->is_suspended && !graph->is_captured && std::holds_alternative<ChildWork>(work)) {
    return Reject(Code::kInvalidValue, "node rejected: a graph cannot be added to a nested graph");
  }
  const auto* const freed = std::get_if<FreeWork>(&work);
  if (freed != nullptr && graph->Frees(freed->address)) {
    return Reject(Code::kInvalidValue, "node rejected: another node frees the same memory");
  }
  std::vector<GraphNode*> nodes;
  if (const Code code = book.FindNodes(*graph, needs, nodes); code != Code::kSuccess) return code;
  const std::shared_ptr<GraphNode> node = graph->Add(std::move(work), std::move(nodes));
  *handle = book.GetHandle(*node);
  if (*handle != nullptr) return Code::kSuccess;
  graph->Remove(*node);
  return Code::kOutOfMemory;
}

// Calls `use` with a node and its work, which must be a Kind; otherwise returns kInvalidValue.
template <typename Kind, typename Use>
Code Get(GraphNodeHandle handle, const void* result, const Use& use) {
  if (AnyNull(result)) return Code::kInvalidValue;
  GraphBook book;
  if (!book.ok()) return book.code();
  const std::shared_ptr<GraphNode> node = book.Find(handle);
  if (node == nullptr || !std::holds_alternative<Kind>(*node->work)) return Code::kInvalidValue;
  use(book, *node, std::get<Kind>(*node->work));
  return Code::kSuccess;
}

// Replaces the work of a node by other work of the same kind. The attributes of a kernel are kept.
Code Change(GraphNode& node, Work work) {
  if (node.work->index() != work.index()) return Code::kInvalidValue;
  if (auto* const launch = std::get_if<KernelWork>(&work)) {
    const LaunchShape& before = std::get<KernelWork>(*node.work).shape;
    launch->shape.cluster = before.cluster;
    launch->shape.is_cooperative = before.is_cooperative;
  }
  node.work = std::make_shared<const Work>(std::move(work));
  return Code::kSuccess;
}

template <typename Given>
Code Set(GraphNodeHandle handle, const Given& given) {
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  Work work;
  if (const Code code = MakeWork(given, work); code != Code::kSuccess) return code;
  if (std::holds_alternative<ChildWork>(work)) return Code::kInvalidValue;
  GraphBook book;
  const std::shared_ptr<GraphNode> node = book.Find(handle);
  return node == nullptr ? Code::kInvalidValue : Change(*node, std::move(work));
}

// Changes a node of an executable graph: the copy of `original`.
template <typename Given>
Code SetInExec(GraphExecHandle handle, GraphNodeHandle original, const Given& given) {
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  Work work;
  if (const Code code = MakeWork(given, work); code != Code::kSuccess) return code;
  GraphBook book;
  const std::shared_ptr<GraphExec> exec = book.Find(handle);
  const std::shared_ptr<GraphNode> known = book.Find(original);
  if (exec == nullptr || known == nullptr) return Code::kInvalidValue;
  GraphNode* const node = exec->NodeFor(*known);
  if (node == nullptr) return Code::kInvalidValue;
  exec->ForgetPlan();
  const auto* const child = std::get_if<ChildWork>(&work);
  if (child == nullptr) return Change(*node, std::move(work));
  // The nested graph is kept; the work of its nodes is replaced by that of the given graph.
  const auto* const own = std::get_if<ChildWork>(node->work.get());
  if (own == nullptr) return Code::kInvalidValue;
  return own->graph->Update(*child->graph).outcome == UpdateOutcome::kSuccess ? Code::kSuccess
                                                                              : Code::kInvalidValue;
}

void Put(GraphNode& node, const KernelWork& work, KernelNodeParametersV1& to) {
  node.shown.clear();
  for (const KernelParameter& parameter : work.layout) {
    node.shown.push_back(const_cast<std::byte*>(work.packed.data() + parameter.offset));
  }
  to = {.function = work.function,
        .grid_x = work.shape.grid.x,
        .grid_y = work.shape.grid.y,
        .grid_z = work.shape.grid.z,
        .block_x = work.shape.block.x,
        .block_y = work.shape.block.y,
        .block_z = work.shape.block.z,
        .shared_bytes = work.shape.dynamic_shared_bytes,
        .parameters = node.shown.empty() ? nullptr : node.shown.data(),
        .extra = nullptr};
}

}  // namespace

// ---- kernels

Code GraphAddKernelNodeV1(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                          std::size_t count, const KernelNodeParametersV1* parameters) {
  return Add(node, graph, {needs, nullptr, count}, parameters);
}
Code GraphAddKernelNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                        std::size_t count, const KernelNodeParameters* parameters) {
  return Add(node, graph, {needs, nullptr, count}, parameters);
}
Code GraphKernelNodeGetParamsV1(GraphNodeHandle handle, KernelNodeParametersV1* parameters) {
  return Get<KernelWork>(handle, parameters, [&](auto&, GraphNode& node, const auto& work) {
    Put(node, work, *parameters);
  });
}
Code GraphKernelNodeGetParams(GraphNodeHandle handle, KernelNodeParameters* parameters) {
  return Get<KernelWork>(handle, parameters, [&](auto&, GraphNode& node, const auto& work) {
    *parameters = {};
    Put(node, work, parameters->launch);
  });
}
Code GraphKernelNodeSetParamsV1(GraphNodeHandle node, const KernelNodeParametersV1* parameters) {
  return Set(node, parameters);
}
Code GraphKernelNodeSetParams(GraphNodeHandle node, const KernelNodeParameters* parameters) {
  return Set(node, parameters);
}
Code GraphExecKernelNodeSetParamsV1(GraphExecHandle exec, GraphNodeHandle node,
                                    const KernelNodeParametersV1* parameters) {
  return SetInExec(exec, node, parameters);
}
Code GraphExecKernelNodeSetParams(GraphExecHandle exec, GraphNodeHandle node,
                                  const KernelNodeParameters* parameters) {
  return SetInExec(exec, node, parameters);
}

namespace {

// Returns whether a node stores the launch attribute. The calls below reject all others.
bool IsKnown(int attribute) {
  return attribute == static_cast<int>(LaunchAttributeId::kCooperative) ||
         attribute == static_cast<int>(LaunchAttributeId::kClusterDimension);
}

}  // namespace

Code GraphKernelNodeGetAttribute(GraphNodeHandle handle, int attribute,
                                 LaunchAttribute::Value* value) {
  if (!IsKnown(attribute)) return Code::kNotSupported;
  return Get<KernelWork>(handle, value, [&](auto&, auto&, const KernelWork& work) {
    *value = {};
    if (attribute == static_cast<int>(LaunchAttributeId::kCooperative)) {
      value->cooperative = work.shape.is_cooperative ? 1 : 0;
    } else {
      value->cluster = {work.shape.cluster.x, work.shape.cluster.y, work.shape.cluster.z};
    }
  });
}

Code GraphKernelNodeSetAttribute(GraphNodeHandle handle, int attribute,
                                 const LaunchAttribute::Value* value) {
  if (!IsKnown(attribute)) return Code::kNotSupported;
  return Get<KernelWork>(handle, value, [&](auto&, GraphNode& node, KernelWork work) {
    if (attribute == static_cast<int>(LaunchAttributeId::kCooperative)) {
      work.shape.is_cooperative = value->cooperative != 0;
    } else {
      work.shape.cluster = {value->cluster.x, value->cluster.y, value->cluster.z};
    }
    node.work = std::make_shared<const Work>(std::move(work));
  });
}

Code GraphKernelNodeCopyAttributes(GraphNodeHandle to, GraphNodeHandle from) {
  for (const auto id : {LaunchAttributeId::kCooperative, LaunchAttributeId::kClusterDimension}) {
    LaunchAttribute::Value value;
    Code code = GraphKernelNodeGetAttribute(from, static_cast<int>(id), &value);
    if (code == Code::kSuccess)
      code = GraphKernelNodeSetAttribute(to, static_cast<int>(id), &value);
    if (code != Code::kSuccess) return code;
  }
  return Code::kSuccess;
}

// ---- copies; the launch determines their context

Code GraphAddMemcpyNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                        std::size_t count, const Copy3d* copy, ContextHandle) {
  return Add(node, graph, {needs, nullptr, count}, copy);
}
Code GraphMemcpyNodeGetParams(GraphNodeHandle handle, Copy3d* copy) {
  return Get<CopyWork>(handle, copy,
                       [&](auto&, auto&, const CopyWork& work) { *copy = work.copy; });
}
Code GraphMemcpyNodeSetParams(GraphNodeHandle node, const Copy3d* copy) { return Set(node, copy); }
Code GraphExecMemcpyNodeSetParams(GraphExecHandle exec, GraphNodeHandle node, const Copy3d* copy,
                                  ContextHandle) {
  return SetInExec(exec, node, copy);
}

// ---- fills

Code GraphAddMemsetNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                        std::size_t count, const FillNodeParameters* fill, ContextHandle) {
  return Add(node, graph, {needs, nullptr, count}, fill);
}
Code GraphMemsetNodeGetParams(GraphNodeHandle handle, FillNodeParameters* fill) {
  return Get<FillWork>(handle, fill,
                       [&](auto&, auto&, const FillWork& work) { *fill = work.fill; });
}
Code GraphMemsetNodeSetParams(GraphNodeHandle node, const FillNodeParameters* fill) {
  return Set(node, fill);
}
Code GraphExecMemsetNodeSetParams(GraphExecHandle exec, GraphNodeHandle node,
                                  const FillNodeParameters* fill, ContextHandle) {
  return SetInExec(exec, node, fill);
}

// ---- host functions

Code GraphAddHostNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                      std::size_t count, const HostNodeParameters* host) {
  return Add(node, graph, {needs, nullptr, count}, host);
}
Code GraphHostNodeGetParams(GraphNodeHandle handle, HostNodeParameters* host) {
  return Get<HostWork>(handle, host,
                       [&](auto&, auto&, const HostWork& work) { *host = work.host; });
}
Code GraphHostNodeSetParams(GraphNodeHandle node, const HostNodeParameters* host) {
  return Set(node, host);
}
Code GraphExecHostNodeSetParams(GraphExecHandle exec, GraphNodeHandle node,
                                const HostNodeParameters* host) {
  return SetInExec(exec, node, host);
}

// ---- events

Code GraphAddEventRecordNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                             std::size_t count, EventHandle event) {
  return Add(node, graph, {needs, nullptr, count}, EventRecordWork{event});
}
Code GraphEventRecordNodeGetEvent(GraphNodeHandle handle, EventHandle* event) {
  return Get<EventRecordWork>(handle, event,
                              [&](auto&, auto&, const auto& work) { *event = work.event; });
}
Code GraphEventRecordNodeSetEvent(GraphNodeHandle node, EventHandle event) {
  return Set(node, EventRecordWork{event});
}
Code GraphExecEventRecordNodeSetEvent(GraphExecHandle exec, GraphNodeHandle node,
                                      EventHandle event) {
  return SetInExec(exec, node, EventRecordWork{event});
}
Code GraphAddEventWaitNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                           std::size_t count, EventHandle event) {
  return Add(node, graph, {needs, nullptr, count}, EventWaitWork{event});
}
Code GraphEventWaitNodeGetEvent(GraphNodeHandle handle, EventHandle* event) {
  return Get<EventWaitWork>(handle, event,
                            [&](auto&, auto&, const auto& work) { *event = work.event; });
}
Code GraphEventWaitNodeSetEvent(GraphNodeHandle node, EventHandle event) {
  return Set(node, EventWaitWork{event});
}
Code GraphExecEventWaitNodeSetEvent(GraphExecHandle exec, GraphNodeHandle node, EventHandle event) {
  return SetInExec(exec, node, EventWaitWork{event});
}

// ---- empty nodes and nested graphs

Code GraphAddEmptyNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                       std::size_t count) {
  return Add(node, graph, {needs, nullptr, count}, EmptyWork{});
}
Code GraphAddChildGraphNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                            std::size_t count, GraphHandle child) {
  return Add(node, graph, {needs, nullptr, count}, child);
}
Code GraphExecChildGraphNodeSetParams(GraphExecHandle exec, GraphNodeHandle node,
                                      GraphHandle child) {
  return SetInExec(exec, node, child);
}
Code GraphChildGraphNodeGetGraph(GraphNodeHandle handle, GraphHandle* graph) {
  return Get<ChildWork>(handle, graph, [&](GraphBook& book, auto&, const ChildWork& work) {
    *graph = book.GetHandle(work.graph);
  });
}

// ---- memory

namespace {

Code AddAllocation(GraphNodeHandle* node, GraphHandle graph, const Dependencies& needs,
                   MemoryNodeParameters* parameters) {
  if (AnyNull(node, parameters)) return Code::kInvalidValue;
  AllocateWork work;
  Code code = MakeAllocateWork(*parameters, work);
  if (code == Code::kSuccess) code = Add(node, graph, needs, work);
  if (code == Code::kSuccess) parameters->address = work.parameters.address;
  return code;
}

Code AddFree(GraphNodeHandle* node, GraphHandle graph, const Dependencies& needs,
             DevicePointer address) {
  FreeWork work;
  const Code code = MakeFreeWork(address, work);
  return code == Code::kSuccess ? Add(node, graph, needs, work) : code;
}

}  // namespace

Code GraphAddMemAllocNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                          std::size_t count, MemoryNodeParameters* parameters) {
  return AddAllocation(node, graph, {needs, nullptr, count}, parameters);
}
Code GraphMemAllocNodeGetParams(GraphNodeHandle handle, MemoryNodeParameters* parameters) {
  return Get<AllocateWork>(handle, parameters, [&](auto&, auto&, const AllocateWork& work) {
    *parameters = work.parameters;
  });
}
Code GraphAddMemFreeNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                         std::size_t count, DevicePointer address) {
  return AddFree(node, graph, {needs, nullptr, count}, address);
}
Code GraphMemFreeNodeGetParams(GraphNodeHandle handle, DevicePointer* address) {
  return Get<FreeWork>(handle, address,
                       [&](auto&, auto&, const FreeWork& work) { *address = work.address; });
}

// ---- nodes of any kind

Code GraphAddNodeV2(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                    const EdgeData* edges, std::size_t count, NodeParameters* parameters) {
  if (AnyNull(parameters)) return Code::kInvalidValue;
  if (parameters->type == kTypeAllocate) {
    return AddAllocation(node, graph, {needs, edges, count}, &parameters->allocation);
  }
  if (parameters->type == kTypeFree) {
    return AddFree(node, graph, {needs, edges, count}, parameters->freed);
  }
  return Add(node, graph, {needs, edges, count}, static_cast<const NodeParameters*>(parameters));
}
Code GraphAddNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                  std::size_t count, NodeParameters* parameters) {
  return GraphAddNodeV2(node, graph, needs, nullptr, count, parameters);
}

namespace {

// Returns the parameters of a node to the program.
void Show(GraphBook&, GraphNode& node, const KernelWork& work, NodeParameters& to) {
  Put(node, work, to.kernel.launch);
}
void Show(GraphBook&, GraphNode&, const CopyWork& work, NodeParameters& to) {
  to.copy.copy = work.copy;
}
void Show(GraphBook&, GraphNode&, const FillWork& work, NodeParameters& to) { to.fill = work.fill; }
void Show(GraphBook&, GraphNode&, const HostWork& work, NodeParameters& to) { to.host = work.host; }
void Show(GraphBook& book, GraphNode&, const ChildWork& work, NodeParameters& to) {
  to.child.graph = book.GetHandle(work.graph);
}
void Show(GraphBook&, GraphNode&, const EmptyWork&, NodeParameters&) {}
void Show(GraphBook&, GraphNode&, const EventWaitWork& work, NodeParameters& to) {
  to.event = work.event;
}
void Show(GraphBook&, GraphNode&, const EventRecordWork& work, NodeParameters& to) {
  to.event = work.event;
}
void Show(GraphBook&, GraphNode&, const AllocateWork& work, NodeParameters& to) {
  to.allocation = work.parameters;
}
void Show(GraphBook&, GraphNode&, const FreeWork& work, NodeParameters& to) {
  to.freed = work.address;
}

}  // namespace

Code GraphNodeGetParams(GraphNodeHandle handle, NodeParameters* parameters) {
  if (AnyNull(parameters)) return Code::kInvalidValue;
  GraphBook book;
  if (!book.ok()) return book.code();
  const std::shared_ptr<GraphNode> node = book.Find(handle);
  if (node == nullptr) return Code::kInvalidValue;
  *parameters = {};
  parameters->type = GetType(*node->work);
  std::visit([&](const auto& work) { Show(book, *node, work, *parameters); }, *node->work);
  return Code::kSuccess;
}
Code GraphNodeSetParams(GraphNodeHandle node, NodeParameters* parameters) {
  return Set(node, static_cast<const NodeParameters*>(parameters));
}
Code GraphExecNodeSetParams(GraphExecHandle exec, GraphNodeHandle node,
                            NodeParameters* parameters) {
  return SetInExec(exec, node, static_cast<const NodeParameters*>(parameters));
}

}  // namespace gpushared::drop_in
