// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <memory>
#include <utility>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

constexpr unsigned kBlockingSync = device::cuda::kEventBlockingSync;
constexpr unsigned kDisableTiming = device::cuda::kEventDisableTiming;
constexpr unsigned kInterprocess = 0x4;
constexpr unsigned kExternal = 1;  // In a captured stream, the record becomes a node.

// Returns the event of a handle. Needs no current context.
Code FindEvent(EventHandle handle, std::shared_ptr<CudaEvent>& event) {
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  event = Driver::Get().events.Find(handle);
  if (event == nullptr) return Code::kInvalidHandle;
  return event->context->session().sticky();
}

// As FindEvent, for an event that was recorded in a stream and not in a graph.
Code FindRecordedEvent(EventHandle handle, std::shared_ptr<CudaEvent>& event) {
  const Code code = FindEvent(handle, event);
  if (code != Code::kSuccess || !event->is_captured.load(std::memory_order_relaxed)) return code;
  return Reject(Code::kCapturedEvent, "the event was recorded in a stream that was captured");
}

// Stores the position of the captured stream.
Code RecordInCapture(CudaEvent& event, const StreamChoice& stream) {
  Driver& driver = Driver::Get();
  const MutexLock lock(GraphsMutex());
  const CapturePoint* const point = driver.captures.Find(*stream);
  if (point == nullptr || !point->sequence->is_valid) return Code::kCaptureInvalidated;
  event.captured = *point;
  event.is_captured.store(true, std::memory_order_relaxed);
  return Code::kSuccess;
}

void ForgetCapture(CudaEvent& event) {
  if (!event.is_captured.load(std::memory_order_relaxed)) return;
  const MutexLock lock(GraphsMutex());
  event.is_captured.store(false, std::memory_order_relaxed);
  event.captured = {};
}

}  // namespace

Code EventCreate(EventHandle* event, unsigned flags) {
  if (AnyNull(event) || (flags & ~(kBlockingSync | kDisableTiming | kInterprocess)) != 0) {
    return Code::kInvalidValue;
  }
  if ((flags & kInterprocess) != 0) {
    return Reject(Code::kNotSupported, "events cannot be shared between processes");
  }
  const Current current;
  if (!current.ok()) return current.code();
  const bool has_timing = (flags & kDisableTiming) == 0;
  Result<Event> made =
      current->session().client().CreateEvent(has_timing ? EventTiming::kOn : EventTiming::kOff);
  if (!made.ok()) return current.GetCode(made.status());
  auto object = std::make_shared<CudaEvent>();
  object->context = current.shared();
  object->event = std::move(*made);
  object->has_timing = has_timing;
  *event = Driver::Get().events.Insert(std::move(object));
  return *event == nullptr ? Code::kOutOfMemory : Code::kSuccess;
}

Code EventDestroy(EventHandle event) {
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  return Driver::Get().events.Remove(event) == nullptr ? Code::kInvalidHandle : Code::kSuccess;
}

Code EventRecordWithFlags(EventHandle handle, StreamHandle stream_handle, unsigned flags) {
  if (flags > kExternal) return Code::kInvalidValue;
  std::shared_ptr<CudaEvent> event;
  if (const Code code = FindEvent(handle, event); code != Code::kSuccess) return code;
  const Current current;
  const StreamChoice stream(current, stream_handle);
  if (!stream.ok()) return stream.code();
  if (event->context->shared_session() != stream->context().shared_session()) {
    return Code::kInvalidHandle;
  }
  if (stream.is_captured()) {
    return flags == kExternal ? stream.Capture(EventRecordWork{handle})
                              : RecordInCapture(*event, stream);
  }
  const Code code = stream.Run([&](const Stream& queue) { return queue.Record(event->event); });
  if (code != Code::kSuccess) return code;
  ForgetCapture(*event);
  event->is_recorded.store(true, std::memory_order_relaxed);
  return Code::kSuccess;
}

Code EventRecord(EventHandle event, StreamHandle stream) {
  return EventRecordWithFlags(event, stream, 0);
}

Code EventQuery(EventHandle handle) {
  std::shared_ptr<CudaEvent> event;
  if (const Code code = FindRecordedEvent(handle, event); code != Code::kSuccess) return code;
  const Code code = RejectWhileCapturing();
  return code == Code::kSuccess ? event->context->session().AfterWork(event->event.Query()) : code;
}

Code EventSynchronize(EventHandle handle) {
  std::shared_ptr<CudaEvent> event;
  const Code code = FindRecordedEvent(handle, event);
  return code == Code::kSuccess ? event->context->session().AfterWork(event->event.Synchronize())
                                : code;
}

Code EventElapsedTime(float* milliseconds, EventHandle start_handle, EventHandle end_handle) {
  if (AnyNull(milliseconds)) return Code::kInvalidValue;
  std::shared_ptr<CudaEvent> start, end;
  if (const Code code = FindRecordedEvent(start_handle, start); code != Code::kSuccess) return code;
  if (const Code code = FindRecordedEvent(end_handle, end); code != Code::kSuccess) return code;
  for (const auto& event : {start, end}) {
    if (!event->has_timing || !event->is_recorded.load(std::memory_order_relaxed)) {
      return Code::kInvalidHandle;
    }
  }
  const Result<std::chrono::nanoseconds> elapsed = Event::ElapsedTime(start->event, end->event);
  if (!elapsed.ok()) return start->context->session().GetCode(elapsed.status());
  *milliseconds = std::chrono::duration<float, std::milli>(*elapsed).count();
  return Code::kSuccess;
}

}  // namespace gpushared::drop_in
