// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/capture.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {

CaptureMode& ModeOfThisThread() {
  static thread_local CaptureMode mode = CaptureMode::kGlobal;
  return mode;
}

void Captures::Purge() {
  std::vector<std::shared_ptr<CaptureSequence>> ended;
  for (auto it = streams_.begin(); it != streams_.end();) {
    if (!it->second.stream.expired()) {
      ++it;
      continue;
    }
    const std::shared_ptr<CaptureSequence> sequence = it->second.point.sequence;
    if (sequence->first_stream_id == it->first) {
      sequence->is_valid = false;
      ended.push_back(sequence);
    } else {
      std::ranges::move(it->second.point.front, std::back_inserter(sequence->left_behind));
    }
    it = streams_.erase(it);
  }
  for (const auto& sequence : ended) RemoveSequence(*sequence);
  any_.store(!streams_.empty(), std::memory_order_relaxed);
}

void Captures::RemoveSequence(CaptureSequence& sequence) {
  std::erase_if(streams_,
                [&](const auto& line) { return line.second.point.sequence.get() == &sequence; });
  sequence.graph->is_suspended = sequence.graph->is_captured = false;
  sequence.has_ended = true;
  any_.store(!streams_.empty(), std::memory_order_relaxed);
}

CapturePoint* Captures::Find(const CudaStream& stream) {
  const auto found = streams_.find(stream.id());
  if (found == streams_.end()) return nullptr;
  CapturePoint& point = found->second.point;
  std::erase_if(point.front, [](const auto& node) { return node->graph == nullptr; });
  return &point;
}

Code Captures::Begin(const std::shared_ptr<CudaStream>& stream, CaptureMode mode,
                     std::shared_ptr<Graph> users_graph,
                     std::vector<std::shared_ptr<GraphNode>> front) {
  Purge();
  if (Find(*stream) != nullptr) return Reject(Code::kIllegalState, "the stream is being captured");
  auto sequence = std::make_shared<CaptureSequence>();
  sequence->id = ++last_id_;
  sequence->mode = mode;
  sequence->thread = std::this_thread::get_id();
  sequence->first_stream_id = stream->id();
  sequence->is_users_graph = users_graph != nullptr;
  sequence->graph = users_graph != nullptr ? std::move(users_graph) : std::make_shared<Graph>();
  sequence->graph->is_suspended = sequence->graph->is_captured = true;
  streams_[stream->id()] = {stream, {std::move(sequence), std::move(front)}};
  any_.store(true, std::memory_order_relaxed);
  return Code::kSuccess;
}

Code Captures::End(const CudaStream& stream, std::shared_ptr<Graph>& graph) {
  Purge();
  const CapturePoint* const end = Find(stream);
  if (end == nullptr) return Reject(Code::kIllegalState, "the stream is not being captured");
  CaptureSequence& sequence = *end->sequence;
  if (sequence.first_stream_id != stream.id()) {
    sequence.is_valid = false;
    return Reject(Code::kCaptureUnmatched, "the capture began in another stream");
  }
  if (sequence.mode != CaptureMode::kRelaxed && sequence.thread != std::this_thread::get_id()) {
    return Reject(Code::kCaptureWrongThread, "the capture began in another thread");
  }
  const auto is_joined = [&](const std::shared_ptr<GraphNode>& node) {
    const auto is_before = [&](const auto& last) { return Graph::Precedes(*node, *last); };
    return node->graph == nullptr || std::ranges::any_of(end->front, is_before);
  };
  const auto has_joined = [&](const auto& line) {
    return line.second.point.sequence != end->sequence ||
           std::ranges::all_of(line.second.point.front, is_joined);
  };
  const bool is_complete = std::ranges::all_of(streams_, has_joined) &&
                           std::ranges::all_of(sequence.left_behind, is_joined);
  const std::shared_ptr<CaptureSequence> ended = end->sequence;
  RemoveSequence(*ended);
  const bool is_good = ended->is_valid && is_complete;
  graph = is_good || !ended->is_users_graph ? std::move(ended->graph) : nullptr;
  if (!ended->is_valid)
    return Reject(Code::kCaptureInvalidated, "an earlier call invalidated the capture");
  if (is_complete) return Code::kSuccess;
  return Reject(Code::kCaptureUnjoined,
                "another stream has work that the first one does not wait for");
}

Code Captures::Add(const CudaStream& stream, Work work) {
  CapturePoint& point = *Find(stream);
  if (!point.sequence->is_valid) return Code::kCaptureInvalidated;
  std::vector<GraphNode*> needs;
  for (const auto& node : point.front) needs.push_back(node.get());
  point.front = {point.sequence->graph->Add(std::move(work), std::move(needs))};
  return Code::kSuccess;
}

Code Captures::Join(const std::shared_ptr<CudaStream>& stream, const CapturePoint& point) {
  Purge();
  CapturePoint* const own = Find(*stream);
  if (point.sequence->has_ended)
    return Reject(Code::kCapturedEvent, "the event's capture has ended");
  if (stream->is_legacy()) return RejectCommand(*stream);
  if (!point.sequence->is_valid) return Code::kCaptureInvalidated;
  if (own == nullptr) {
    streams_[stream->id()] = {stream, point};
    return Code::kSuccess;
  }
  if (own->sequence != point.sequence) {
    own->sequence->is_valid = point.sequence->is_valid = false;
    return Reject(Code::kCaptureMerge, "the event belongs to another capture");
  }
  for (const auto& node : point.front) {
    if (std::ranges::find(own->front, node) == own->front.end()) own->front.push_back(node);
  }
  return Code::kSuccess;
}

std::vector<CaptureSequence*> Captures::Matching(const Condition& condition) {
  Purge();
  std::vector<CaptureSequence*> found;
  for (const auto& [id, line] : streams_) {
    const std::shared_ptr<CudaStream> stream = line.stream.lock();
    CaptureSequence& sequence = *line.point.sequence;
    if (stream != nullptr && condition(*stream, sequence)) found.push_back(&sequence);
  }
  return found;
}

bool Captures::Invalidate(const Condition& condition) {
  const std::vector<CaptureSequence*> found = Matching(condition);
  for (CaptureSequence* sequence : found) sequence->is_valid = false;
  return !found.empty();
}

namespace {

// Matches the streams that a legacy stream would wait for.
auto BlockedBy(const CudaStream& legacy) {
  return [&](const CudaStream& other, const CaptureSequence&) {
    return legacy.is_legacy() && &other.context() == &legacy.context() && other.is_blocking();
  };
}

}  // namespace

bool Captures::IsLegacyBlocked(const CudaStream& stream) {
  return !Matching(BlockedBy(stream)).empty();
}

Code Captures::RejectCommand(const CudaStream& stream) {
  if (const CapturePoint* const point = Find(stream)) {
    if (!std::exchange(point->sequence->is_valid, false)) return Code::kCaptureInvalidated;
    return Reject(Code::kCaptureUnsupported, "a graph cannot contain this call");
  }
  if (!Invalidate(BlockedBy(stream))) return Code::kSuccess;
  return Reject(Code::kCaptureImplicit,
                "the legacy stream would wait for a stream that is captured");
}

Code Captures::RejectInContext(const Context& context) {
  const bool has_capture = Invalidate([&](const CudaStream& stream, const CaptureSequence&) {
    return &stream.context() == &context;
  });
  if (!has_capture) return Code::kSuccess;
  return Reject(Code::kCaptureUnsupported, "a stream of the context is being captured");
}

Code Captures::RejectUnsafe() {
  const CaptureMode mine = ModeOfThisThread();
  if (mine == CaptureMode::kRelaxed) return Code::kSuccess;
  const std::thread::id thread = std::this_thread::get_id();
  const bool is_unsafe = Invalidate([&](const CudaStream&, const CaptureSequence& sequence) {
    if (sequence.thread == thread) return sequence.mode != CaptureMode::kRelaxed;
    return mine == CaptureMode::kGlobal && sequence.mode == CaptureMode::kGlobal;
  });
  if (!is_unsafe) return Code::kSuccess;
  return Reject(Code::kCaptureUnsupported, "the call is unsafe while a stream is being captured");
}

}  // namespace gpushared::drop_in
