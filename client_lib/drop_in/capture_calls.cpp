// SPDX-License-Identifier: Apache-2.0
// Captures: the work of streams becomes a graph instead of running.
#include <memory>
#include <utility>
#include <vector>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/graph_book.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

constexpr int kModeLast = static_cast<int>(CaptureMode::kRelaxed);

// CUstreamUpdateCaptureDependencies_flags.
constexpr unsigned kAddDependencies = 0;
constexpr unsigned kSetDependencies = 1;

Code Begin(StreamHandle handle, int mode, GraphHandle users_graph,
           const GraphBook::Dependencies& needs) {
  if (mode < 0 || mode > kModeLast) return Code::kInvalidValue;
  const Current current;
  const StreamChoice stream(current, handle);
  if (!stream.ok()) return stream.code();
  if (stream->is_legacy()) {
    return Reject(Code::kCaptureUnsupported,
                  "capture rejected: the legacy stream cannot be captured");
  }
  GraphBook book;
  std::shared_ptr<Graph> graph;
  std::vector<GraphNode*> nodes;
  if (users_graph != nullptr) {
    graph = book.Find(users_graph);
    if (graph == nullptr || graph->is_suspended) return Code::kInvalidValue;
    const Code code = book.FindNodes(*graph, needs, nodes);
    if (code != Code::kSuccess) return code;
  }
  std::vector<std::shared_ptr<GraphNode>> front;
  front.reserve(nodes.size());
  for (GraphNode* node : nodes) front.push_back(node->shared_from_this());
  return Driver::Get().captures.Begin(stream.shared(), static_cast<CaptureMode>(mode),
                                      std::move(graph), std::move(front));
}

// Calls `use` with the position of the stream in its capture, or with null if no capture contains
// the stream.
template <typename Use>
Code WithPoint(StreamHandle handle, const Use& use) {
  const Current current;
  const StreamChoice stream(current, handle);
  if (!stream.ok()) return stream.code();
  GraphBook book;
  Captures& captures = Driver::Get().captures;
  if (captures.IsLegacyBlocked(*stream)) {
    return Reject(Code::kCaptureImplicit,
                  "the legacy stream would wait for a stream that is captured");
  }
  return use(book, captures.Find(*stream));
}

CaptureStatus StatusFor(const CapturePoint* point) {
  if (point == nullptr) return CaptureStatus::kNone;
  return point->sequence->is_valid ? CaptureStatus::kActive : CaptureStatus::kInvalidated;
}

}  // namespace

Code StreamBeginCapture(StreamHandle stream, int mode) { return Begin(stream, mode, nullptr, {}); }

Code StreamBeginCaptureV1(StreamHandle stream) {
  return StreamBeginCapture(stream, static_cast<int>(CaptureMode::kGlobal));
}

Code StreamBeginCaptureToGraph(StreamHandle stream, GraphHandle graph, const GraphNodeHandle* needs,
                               const EdgeData* edges, std::size_t count, int mode) {
  if (AnyNull(graph)) return Code::kInvalidValue;
  return Begin(stream, mode, graph, {needs, edges, count});
}

Code StreamEndCapture(StreamHandle handle, GraphHandle* graph) {
  if (AnyNull(graph)) return Code::kInvalidValue;
  *graph = nullptr;
  const Current current;
  const StreamChoice stream(current, handle);
  if (!stream.ok()) return stream.code();
  GraphBook book;
  std::shared_ptr<Graph> captured;
  const Code code = Driver::Get().captures.End(*stream, captured);
  if (code != Code::kSuccess) {
    if (captured != nullptr) book.DropHandles(*captured);
    return code;
  }
  *graph = book.GetHandle(captured);
  return *graph == nullptr ? Code::kOutOfMemory : Code::kSuccess;
}

Code StreamIsCapturing(StreamHandle handle, int* status) {
  return StreamGetCaptureInfo(handle, status, nullptr);
}

Code StreamGetCaptureInfo(StreamHandle handle, int* status, std::uint64_t* id) {
  return StreamGetCaptureInfoV2(handle, status, id, nullptr, nullptr, nullptr);
}

Code StreamGetCaptureInfoV2(StreamHandle handle, int* status, std::uint64_t* id, GraphHandle* graph,
                            const GraphNodeHandle** needs, std::size_t* count) {
  return StreamGetCaptureInfoV3(handle, status, id, graph, needs, nullptr, count);
}

// Without an active capture, all outputs except the status and the id are set to zero or null,
// because some programs check those instead of the status. Edges have no data here, but programs
// read one entry per handle.
Code StreamGetCaptureInfoV3(StreamHandle handle, int* status, std::uint64_t* id, GraphHandle* graph,
                            const GraphNodeHandle** needs, const EdgeData** edges,
                            std::size_t* count) {
  if (AnyNull(status)) return Code::kInvalidValue;
  return WithPoint(handle, [&](GraphBook& book, CapturePoint* point) {
    *status = static_cast<int>(StatusFor(point));
    if (id != nullptr) *id = point == nullptr ? 0 : point->sequence->id;
    if (graph != nullptr) *graph = nullptr;
    if (needs != nullptr) *needs = nullptr;
    if (edges != nullptr) *edges = nullptr;
    if (count != nullptr) *count = 0;
    if (StatusFor(point) != CaptureStatus::kActive) return Code::kSuccess;
    if (graph != nullptr) *graph = book.GetHandle(point->sequence->graph);
    point->shown.clear();
    for (const auto& node : point->front) point->shown.push_back(book.GetHandle(*node));
    point->shown_edges.assign(point->shown.size(), EdgeData{});
    if (needs != nullptr) *needs = point->shown.data();
    if (edges != nullptr) *edges = point->shown_edges.data();
    if (count != nullptr) *count = point->shown.size();
    return Code::kSuccess;
  });
}

Code StreamUpdateCaptureDependenciesV2(StreamHandle handle, GraphNodeHandle* needs,
                                       const EdgeData* edges, std::size_t count, unsigned flags) {
  if (flags != kAddDependencies && flags != kSetDependencies) return Code::kInvalidValue;
  return WithPoint(handle, [&](GraphBook& book, CapturePoint* point) {
    if (point == nullptr) return Reject(Code::kIllegalState, "the stream is not being captured");
    if (!point->sequence->is_valid) return Code::kCaptureInvalidated;
    std::vector<GraphNode*> nodes;
    const Code code = book.FindNodes(*point->sequence->graph, {needs, edges, count}, nodes);
    if (code != Code::kSuccess) return code;
    if (flags == kSetDependencies) point->front.clear();
    for (GraphNode* node : nodes) {
      std::erase(point->front, node->shared_from_this());
      point->front.push_back(node->shared_from_this());
    }
    return Code::kSuccess;
  });
}

Code StreamUpdateCaptureDependencies(StreamHandle stream, GraphNodeHandle* needs, std::size_t count,
                                     unsigned flags) {
  return StreamUpdateCaptureDependenciesV2(stream, needs, nullptr, count, flags);
}

Code ThreadExchangeStreamCaptureMode(int* mode) {
  if (AnyNull(mode) || *mode < 0 || *mode > kModeLast) return Code::kInvalidValue;
  const CaptureMode before = std::exchange(ModeOfThisThread(), static_cast<CaptureMode>(*mode));
  *mode = static_cast<int>(before);
  return Code::kSuccess;
}

}  // namespace gpushared::drop_in
