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

// CUstreamCaptureMode: which threads must leave alone what could spoil a capture.
enum class CaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };
// CUstreamCaptureStatus.
enum class CaptureStatus : int { kNone = 0, kActive = 1, kInvalidated = 2 };

// One capture: from the begin in its first stream until the end there.
struct CaptureSequence {
  std::uint64_t id = 0;
  CaptureMode mode = CaptureMode::kGlobal;
  std::thread::id thread;  // The thread that began it.
  std::uint64_t first_stream_id = 0;
  std::shared_ptr<Graph> graph;
  // The last nodes of streams that joined and are gone. The first stream must wait for them, too.
  std::vector<std::shared_ptr<GraphNode>> left_behind;
  bool is_users_graph = false;  // The program had it before.
  bool is_valid = true;
  bool has_ended = false;
};

// Where the work of a stream, or an event in it, stands in a capture.
struct CapturePoint {
  std::shared_ptr<CaptureSequence> sequence;
  std::vector<std::shared_ptr<GraphNode>> front;  // The next node needs these.
  // Handles that a program was shown last, and the data of their edges.
  std::vector<GraphNodeHandle> shown;
  std::vector<EdgeData> shown_edges;
};

// All captures of the process, and the streams in them. A capture ends with its first stream. Other
// streams that are gone leave their work behind. A thread that is gone takes its captures with it.
//
// GraphsMutex guards all but Any.
class Captures {
 public:
  // Whether a stream may be in a capture. Cheap: every command asks. A thread that began a capture,
  // or was told of it, sees it.
  bool Any() const { return any_.load(std::memory_order_relaxed); }

  // `users_graph`: the program's, whose nodes `front` come first; null: a new one.
  Code Begin(const std::shared_ptr<CudaStream>& stream, CaptureMode mode,
             std::shared_ptr<Graph> users_graph, std::vector<std::shared_ptr<GraphNode>> front)
      GPUSHARED_REQUIRES(GraphsMutex());
  // `graph`: that of a capture that has ended. Where the code says that it was spoilt, the graph is
  // of no use, and null if it is the program's.
  Code End(const CudaStream& stream, std::shared_ptr<Graph>& graph)
      GPUSHARED_REQUIRES(GraphsMutex());
  // The stream's point; null: in no capture. Its front has no destroyed nodes.
  CapturePoint* Find(const CudaStream& stream) GPUSHARED_REQUIRES(GraphsMutex());

  // Adds a node behind the stream's front. The stream must be in a capture.
  Code Add(const CudaStream& stream, Work work) GPUSHARED_REQUIRES(GraphsMutex());
  // Later work of the stream needs what stands before `point`. The stream joins its capture.
  Code Join(const std::shared_ptr<CudaStream>& stream, const CapturePoint& point)
      GPUSHARED_REQUIRES(GraphsMutex());
  // Whether the stream is a legacy stream that would wait for one in a capture.
  bool IsLegacyBlocked(const CudaStream& stream) GPUSHARED_REQUIRES(GraphsMutex());
  // The answer to what no capture can hold, and spoils it: nothing on a stream that is in none.
  Code RejectCommand(const CudaStream& stream) GPUSHARED_REQUIRES(GraphsMutex());
  // The same for what involves all streams of a context.
  Code RejectInContext(const Context& context) GPUSHARED_REQUIRES(GraphsMutex());
  // The same for a call that is unsafe while this thread, or another one, captures.
  Code RejectUnsafe() GPUSHARED_REQUIRES(GraphsMutex());

 private:
  struct Line {
    std::weak_ptr<CudaStream> stream;
    CapturePoint point;
  };

  void Purge() GPUSHARED_REQUIRES(GraphsMutex());
  void RemoveSequence(CaptureSequence& sequence) GPUSHARED_REQUIRES(GraphsMutex());
  using Condition = std::function<bool(const CudaStream&, const CaptureSequence&)>;
  // The captures with a line that the condition holds for.
  std::vector<CaptureSequence*> Matching(const Condition& condition)
      GPUSHARED_REQUIRES(GraphsMutex());
  // The same captures are spoilt. Returns whether there were any.
  bool Spoil(const Condition& condition) GPUSHARED_REQUIRES(GraphsMutex());

  std::unordered_map<std::uint64_t, Line> lines_ GPUSHARED_GUARDED_BY(GraphsMutex());  // By stream.
  std::uint64_t last_id_ GPUSHARED_GUARDED_BY(GraphsMutex()) = 0;
  std::atomic<bool> any_{false};
};

// The calling thread's own mode: cuThreadExchangeStreamCaptureMode.
CaptureMode& ModeOfThisThread();

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_CAPTURE_H_
