// SPDX-License-Identifier: Apache-2.0
// Executable graphs: creation, changes, launches.
#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/graph_book.h"
#include "client_lib/drop_in/graph_work.h"
#include "client_lib/drop_in/host_calls.h"
#include "client_lib/drop_in/log.h"
#include "client_lib/drop_in/server_graphs.h"

namespace gpushared::drop_in {
namespace {

// CUgraphInstantiate_flags.
constexpr std::uint64_t kAutoFree = 1;
constexpr std::uint64_t kUpload = 2;
constexpr std::uint64_t kUseNodePriority = 8;
// CUgraphInstantiateResult.
constexpr int kInstantiated = 0;
constexpr int kInstantiateError = 1;
constexpr int kInvalidStructure = 2;

template <typename Use>
Code WithExec(GraphExecHandle handle, const Use& use) {
  GraphBook book;
  if (!book.ok()) return book.code();
  const std::shared_ptr<GraphExec> exec = book.Find(handle);
  return exec == nullptr ? Code::kInvalidValue : use(book, *exec);
}

Code Instantiate(GraphExecHandle* handle, GraphHandle graph_handle, std::uint64_t flags,
                 std::uint64_t allowed, int& result) {
  result = kInstantiateError;
  if (AnyNull(handle)) return Code::kInvalidValue;
  if ((flags & ~allowed) != 0) {
    return Reject(Code::kNotSupported,
                  "graph rejected: unsupported flags; graphs cannot be launched from kernels");
  }
  GraphBook book;
  if (!book.ok()) return book.code();
  const std::shared_ptr<Graph> graph = book.Find(graph_handle);
  if (graph == nullptr) return Code::kInvalidValue;
  const bool has_memory = graph->has_memory();
  if (has_memory && !graph->instance.expired()) {
    return Reject(Code::kInvalidValue,
                  "graph rejected: it allocates memory and already has an executable graph");
  }
  std::shared_ptr<GraphExec> exec = GraphExec::Make(*graph, flags);
  if (exec == nullptr) {
    result = kInvalidStructure;
    return Reject(Code::kInvalidValue,
                  "graph rejected: the dependencies of its nodes form a cycle");
  }
  if (has_memory) graph->instance = exec;
  *handle = Driver::Get().graph_execs.Insert(std::move(exec));
  if (*handle == nullptr) return Code::kOutOfMemory;
  result = kInstantiated;
  return Code::kSuccess;
}

// ---- launches

Code Replay(const HostWork& work, StreamHandle stream) {
  return LaunchHostFunc(stream, work.host.function, work.host.data);
}
Code Replay(const EventWaitWork& work, StreamHandle stream) {
  return StreamWaitEvent(stream, work.event, 0);
}
Code Replay(const EventRecordWork& work, StreamHandle stream) {
  return EventRecord(work.event, stream);
}
Code Replay(const EmptyWork&, StreamHandle) { return Code::kSuccess; }
// Never called, because a plan contains the nodes of a nested graph in place of the child node.
Code Replay(const ChildWork&, StreamHandle) { return Code::kSuccess; }

// Waits for the previous launch of the executable graph.
Code WaitFor(const std::weak_ptr<CudaStream>& last_stream, const StreamChoice& stream) {
  const std::shared_ptr<CudaStream> last = last_stream.lock();
  if (last == stream.shared()) return Code::kSuccess;
  Session& session = stream->context().session();
  // The progress of a destroyed stream is unknown, so this waits for the whole session.
  if (last == nullptr) return session.AfterWork(session.client().Synchronize());
  if (last->context().shared_session() != stream->context().shared_session()) {
    return last->context().session().AfterWork(last->stream().Synchronize());
  }
  const Result<Event> end = session.client().CreateEvent();
  if (!end.ok()) return session.GetCode(end.status());
  const Status recorded = last->stream().Record(*end);
  if (!recorded.ok()) return session.GetCode(recorded);
  return stream.Run([&](const Stream& queue) { return queue.Wait(*end); });
}

Code CaptureLaunch(GraphExec& exec, const StreamChoice& stream) {
  ChildWork work;
  {
    const GraphBook book;
    if (exec.graph().has_memory()) return RejectCopyWithMemory();
    if (exec.graph().depth() >= Graph::kDepthMax) return Code::kInvalidValue;
    work.graph = exec.graph().Clone();
    work.graph->is_suspended = true;
  }
  return stream.Capture(std::move(work));
}

}  // namespace

// ---- creation and destruction

Code GraphInstantiateWithFlags(GraphExecHandle* exec, GraphHandle graph, unsigned long long flags) {
  int result = 0;
  return Instantiate(exec, graph, flags, kAutoFree | kUseNodePriority, result);
}

// Accepts kUpload but uploads nothing, because launches need no upload.
Code GraphInstantiateWithParams(GraphExecHandle* exec, GraphHandle graph,
                                InstantiateParameters* parameters) {
  if (AnyNull(parameters)) return Code::kInvalidValue;
  parameters->error_node = nullptr;
  return Instantiate(exec, graph, parameters->flags, kAutoFree | kUpload | kUseNodePriority,
                     parameters->result);
}

Code GraphInstantiate(GraphExecHandle* exec, GraphHandle graph, GraphNodeHandle* error_node,
                      char* log, std::size_t log_bytes) {
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && log_bytes != 0) *log = '\0';
  return GraphInstantiateWithFlags(exec, graph, 0);
}

// If the graph holds user objects, it is released only after its last launch has ended.
Code GraphExecDestroy(GraphExecHandle handle) {
  std::shared_ptr<GraphExec> exec;
  std::shared_ptr<CudaStream> last_stream;
  const Code code = WithExec(handle, [&](GraphBook&, GraphExec& found) {
    exec = Driver::Get().graph_execs.Remove(handle);
    if (!found.graph().user_objects.empty()) last_stream = found.last_stream.lock();
    return Code::kSuccess;
  });
  if (last_stream != nullptr) {
    const Result<Event> end = last_stream->context().session().client().CreateEvent();
    if (end.ok() && last_stream->stream().Record(*end).ok()) {
      HostCalls::Get().AddLoose([exec, end = *end](Code) { static_cast<void>(end.Synchronize()); });
    }
  }
  const GraphBook book;  // Graphs are destroyed under its lock.
  exec = nullptr;
  return code;
}

Code GraphExecGetFlags(GraphExecHandle handle, std::uint64_t* flags) {
  if (AnyNull(flags)) return Code::kInvalidValue;
  return WithExec(handle, [&](GraphBook&, const GraphExec& exec) {
    *flags = exec.flags();
    return Code::kSuccess;
  });
}

Code GraphExecGetId(GraphExecHandle handle, unsigned* id) {
  if (AnyNull(id)) return Code::kInvalidValue;
  return WithExec(handle, [&](GraphBook&, const GraphExec& exec) {
    *id = static_cast<unsigned>(exec.graph().id());
    return Code::kSuccess;
  });
}

// ---- changes

Code GraphExecUpdate(GraphExecHandle handle, GraphHandle graph_handle, UpdateResultInfo* info) {
  if (AnyNull(info)) return Code::kInvalidValue;
  *info = {};
  return WithExec(handle, [&](GraphBook& book, GraphExec& exec) {
    const std::shared_ptr<Graph> graph = book.Find(graph_handle);
    if (graph == nullptr) return Code::kInvalidValue;
    const Graph::Updated updated = exec.graph().Update(*graph);
    exec.ForgetPlan();
    info->result = static_cast<int>(updated.outcome);
    if (updated.outcome == UpdateOutcome::kSuccess) return Code::kSuccess;
    if (updated.node != nullptr) info->error_node = book.GetHandle(*updated.node);
    return Code::kGraphExecUpdateFailure;
  });
}

Code GraphExecUpdateV1(GraphExecHandle exec, GraphHandle graph, GraphNodeHandle* error_node,
                       int* result) {
  UpdateResultInfo info{};
  const Code code = GraphExecUpdate(exec, graph, &info);
  if (error_node != nullptr) *error_node = info.error_node;
  if (result != nullptr) *result = info.result;
  return code;
}

Code GraphNodeSetEnabled(GraphExecHandle handle, GraphNodeHandle original, unsigned is_enabled) {
  return WithExec(handle, [&](GraphBook& book, GraphExec& exec) {
    const std::shared_ptr<GraphNode> known = book.Find(original);
    GraphNode* const node = known == nullptr ? nullptr : exec.NodeFor(*known);
    if (node == nullptr) return Code::kInvalidValue;
    const bool can_be = std::holds_alternative<KernelWork>(*node->work) ||
                        std::holds_alternative<CopyWork>(*node->work) ||
                        std::holds_alternative<FillWork>(*node->work);
    if (!can_be) return Code::kInvalidValue;
    node->is_enabled = is_enabled != 0;
    exec.ForgetPlan();
    return Code::kSuccess;
  });
}

Code GraphNodeGetEnabled(GraphExecHandle handle, GraphNodeHandle original, unsigned* is_enabled) {
  if (AnyNull(is_enabled)) return Code::kInvalidValue;
  return WithExec(handle, [&](GraphBook& book, GraphExec& exec) {
    const std::shared_ptr<GraphNode> known = book.Find(original);
    const GraphNode* const node = known == nullptr ? nullptr : exec.NodeFor(*known);
    if (node == nullptr) return Code::kInvalidValue;
    *is_enabled = node->is_enabled ? 1 : 0;
    return Code::kSuccess;
  });
}

// ---- launches

// Submits the nodes one after another in an order that their edges allow. A sequence of kernel
// launches that the server holds as a graph is submitted as one command.
Code GraphLaunch(GraphExecHandle handle, StreamHandle stream_handle) {
  const Current current;
  const StreamChoice stream(current, stream_handle);
  if (!stream.ok()) return stream.code();
  std::shared_ptr<GraphExec> exec;
  std::shared_ptr<const GraphExec::Plan> plan;
  std::weak_ptr<CudaStream> last_stream = stream.shared();
  std::shared_ptr<ServerGraphs> server_graphs;
  {
    const GraphBook book;
    exec = book.Find(handle);
    if (exec == nullptr) return Code::kInvalidValue;
    plan = exec->plan();
  }
  if (stream.is_captured()) return CaptureLaunch(*exec, stream);
  {
    const GraphBook book;
    if (std::exchange(exec->has_launched, true)) last_stream = exec->last_stream;
    exec->last_stream = stream.shared();
    if (exec->server_graphs == nullptr) exec->server_graphs = std::make_shared<ServerGraphs>();
    server_graphs = exec->server_graphs;
  }
  if (const Code code = WaitFor(last_stream, stream); code != Code::kSuccess) return code;
  const Code freed = FreeLeftOver(*plan, (exec->flags() & kAutoFree) != 0, stream);
  if (freed != Code::kSuccess) return freed;
  server_graphs->Prepare(*plan, stream);
  for (std::size_t at = 0; at < plan->size();) {
    ServerGraphs::Ran ran = server_graphs->Launch(*plan, at, stream);
    if (ran.works == 0) {
      ran.works = 1;
      ran.code =
          std::visit([&](const auto& kind) { return Replay(kind, stream_handle); }, *(*plan)[at]);
    }
    if (ran.code != Code::kSuccess) return ran.code;
    at += ran.works;
  }
  return Code::kSuccess;
}

// Launches need no upload.
Code GraphUpload(GraphExecHandle handle, StreamHandle stream_handle) {
  const Current current;
  const StreamChoice stream(current, stream_handle);
  if (!stream.ok()) return stream.code();
  return WithExec(handle, [](GraphBook&, GraphExec&) { return Code::kSuccess; });
}

}  // namespace gpushared::drop_in
