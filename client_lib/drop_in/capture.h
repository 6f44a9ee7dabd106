// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_CAPTURE_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_CAPTURE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "gpushared/mutex.h"

#include "client_lib/drop_in/context.h"
#include "client_lib/drop_in/driver_types.h"
#include "client_lib/drop_in/graph.h"

namespace gpushared::drop_in {

// CUstreamCaptureMode: which threads may not make calls that could invalidate a capture.
enum class CaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };
// CUstreamCaptureStatus.
enum class CaptureStatus : int { kNone = 0, kActive = 1, kInvalidated = 2 };

// One capture, from its beginning in the first stream to its end in the same stream.
struct CaptureSequence {
  std::uint64_t id = 0;
  CaptureMode mode = CaptureMode::kGlobal;
  std::thread::id thread;  // Thread that began the capture.
  std::uint64_t first_stream_id = 0;
  std::shared_ptr<Graph> graph;
  // Last nodes of streams that joined and were destroyed. The first stream must wait for these
  // nodes as well.
  std::vector<std::shared_ptr<GraphNode>> left_behind;
  bool is_users_graph = false;  // Whether the graph existed before the capture.
  bool is_valid = true;
  bool has_ended = false;
};

// Position of a stream or an event in a capture.
struct CapturePoint {
  std::shared_ptr<CaptureSequence> sequence;
  std::vector<std::shared_ptr<GraphNode>> front;  // Dependencies of the next node.
  // Handles last returned to the program, and the data of their edges.
  std::vector<GraphNodeHandle> shown;
  std::vector<EdgeData> shown_edges;
};

// All captures of the process and their streams. A capture ends with its first stream, such as the
// default stream of a thread that ends. Other streams that are destroyed leave their work in the
// capture.
//
// GraphsMutex guards everything except Any.
class Captures {
 public:
  // Returns whether a stream may be in a capture. Takes no lock, so that every command can call it.
  // Observes the captures that the calling thread began, and those that other threads began before
  // they synchronized with it.
  bool Any() const { return any_.load(std::memory_order_relaxed); }

  // Begins a capture into `users_graph`, a graph of the program whose nodes `front` precede the
  // captured nodes. Creates a graph if `users_graph` is null.
  Code Begin(const std::shared_ptr<CudaStream>& stream, CaptureMode mode,
             std::shared_ptr<Graph> users_graph, std::vector<std::shared_ptr<GraphNode>> front)
      GPUSHARED_REQUIRES(GraphsMutex());
  // Ends a capture and returns its graph. If the code reports an invalid capture, the graph is
  // unusable, and null if it belongs to the program.
  Code End(const CudaStream& stream, std::shared_ptr<Graph>& graph)
      GPUSHARED_REQUIRES(GraphsMutex());
  // Returns the position of the stream; null if it is in no capture. The front contains no
  // destroyed nodes.
  CapturePoint* Find(const CudaStream& stream) GPUSHARED_REQUIRES(GraphsMutex());

  // Adds a node after the stream's front. The stream must be in a capture.
  Code Add(const CudaStream& stream, Work work) GPUSHARED_REQUIRES(GraphsMutex());
  // Makes later work of the stream depend on the work before `point`; the stream joins that
  // capture.
  Code Join(const std::shared_ptr<CudaStream>& stream, const CapturePoint& point)
      GPUSHARED_REQUIRES(GraphsMutex());
  // Returns whether the stream is a legacy stream that would wait for a captured one.
  bool IsLegacyBlocked(const CudaStream& stream) GPUSHARED_REQUIRES(GraphsMutex());
  // Rejects a command that no capture can contain: if the stream is in a capture, or is a legacy
  // stream that would wait for a captured one, invalidates the captures and returns the error.
  // Otherwise returns kSuccess.
  Code RejectCommand(const CudaStream& stream) GPUSHARED_REQUIRES(GraphsMutex());
  // As RejectCommand, for commands that involve all streams of a context.
  Code RejectInContext(const Context& context) GPUSHARED_REQUIRES(GraphsMutex());
  // As RejectCommand, for calls that are unsafe while this or another thread captures.
  Code RejectUnsafe() GPUSHARED_REQUIRES(GraphsMutex());

 private:
  struct CapturedStream {
    std::weak_ptr<CudaStream> stream;
    CapturePoint point;
  };

  void Purge() GPUSHARED_REQUIRES(GraphsMutex());
  void RemoveSequence(CaptureSequence& sequence) GPUSHARED_REQUIRES(GraphsMutex());
  using Condition = std::function<bool(const CudaStream&, const CaptureSequence&)>;
  // Returns the captures with a stream that meets the condition.
  std::vector<CaptureSequence*> Matching(const Condition& condition)
      GPUSHARED_REQUIRES(GraphsMutex());
  // Invalidates the captures that Matching returns. Returns whether there were any.
  bool Invalidate(const Condition& condition) GPUSHARED_REQUIRES(GraphsMutex());

  std::unordered_map<std::uint64_t, CapturedStream> streams_
      GPUSHARED_GUARDED_BY(GraphsMutex());  // By the id of the stream.
  std::uint64_t last_id_ GPUSHARED_GUARDED_BY(GraphsMutex()) = 0;
  std::atomic<bool> any_{false};
};

// Mode of the calling thread, see cuThreadExchangeStreamCaptureMode.
CaptureMode& ModeOfThisThread();

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_CAPTURE_H_
