// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/graph_work.h"
#include "client_lib/drop_in/host_calls.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

constexpr unsigned kExternal = 1;  // In a captured stream, the wait becomes a node.

// Calls `use` with the stream of the handle.
template <typename Use>
Code WithStream(StreamHandle handle, const Use& use) {
  const Current current;
  const StreamChoice stream(current, handle);
  if (!stream.ok()) return stream.code();
  use(*stream);
  return Code::kSuccess;
}

// Handles a wait that involves a capture; no value for any other wait.
std::optional<Code> WaitInCapture(const StreamChoice& stream, EventHandle handle,
                                  const CudaEvent& event, unsigned flags) {
  const bool is_event_captured = event.is_captured.load(std::memory_order_relaxed);
  const bool is_stream_captured = stream.is_captured();
  if (is_stream_captured && flags == kExternal) return stream.Capture(EventWaitWork{handle});
  if (!is_event_captured && !is_stream_captured) return std::nullopt;
  Driver& driver = Driver::Get();
  const MutexLock lock(GraphsMutex());
  if (is_event_captured) return driver.captures.Join(stream.shared(), event.captured);
  const Code code = driver.captures.RejectCommand(*stream);
  if (code != Code::kCaptureUnsupported) return code;
  return Reject(Code::kCaptureIsolation, "the event was recorded outside of the capture");
}

}  // namespace

Code StreamCreateWithPriority(StreamHandle* stream, unsigned flags, int) {
  if (AnyNull(stream) || flags > device::cuda::kStreamNonBlocking) return Code::kInvalidValue;
  const Current current;
  if (!current.ok()) return current.code();
  Result<std::shared_ptr<CudaStream>> made = current->NewStream(flags);
  if (!made.ok()) return current.GetCode(made.status());
  *stream = Driver::Get().streams.Insert(std::move(*made));
  return *stream == nullptr ? Code::kOutOfMemory : Code::kSuccess;
}

Code StreamCreate(StreamHandle* stream, unsigned flags) {
  return StreamCreateWithPriority(stream, flags, 0);
}

// Queued work still runs.
Code StreamDestroy(StreamHandle stream) {
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  return Driver::Get().streams.Remove(stream) == nullptr ? Code::kInvalidHandle : Code::kSuccess;
}

Code StreamSynchronize(StreamHandle handle) {
  const Current current;
  const StreamChoice stream(current, handle);
  return stream.Synchronize();
}

Code StreamQuery(StreamHandle handle) {
  const Current current;
  const StreamChoice stream(current, handle);
  if (const Code code = stream.Allowed(); code != Code::kSuccess) return code;
  if (stream->has_host_calls()) return Code::kNotReady;
  return stream.Ask([](const Stream& queue) { return queue.Query(); });
}

Code StreamWaitEvent(StreamHandle handle, EventHandle event_handle, unsigned flags) {
  if (flags > kExternal) return Code::kInvalidValue;
  const Current current;
  const StreamChoice stream(current, handle);
  if (!stream.ok()) return stream.code();
  const std::shared_ptr<CudaEvent> event = Driver::Get().events.Find(event_handle);
  if (event == nullptr) return Code::kInvalidHandle;
  if (const auto code = WaitInCapture(stream, event_handle, *event, flags)) return *code;
  if (event->context->shared_session() != stream->context().shared_session()) {
    // For an event of another device, the host waits instead of the stream.
    return event->context->session().AfterWork(event->event.Synchronize());
  }
  return stream.Run([&](const Stream& queue) { return queue.Wait(event->event); });
}

Code StreamGetFlags(StreamHandle handle, unsigned* flags) {
  if (AnyNull(flags)) return Code::kInvalidValue;
  return WithStream(handle, [&](const CudaStream& stream) { *flags = stream.flags(); });
}

Code StreamGetPriority(StreamHandle handle, int* priority) {
  if (AnyNull(priority)) return Code::kInvalidValue;
  return WithStream(handle, [&](const CudaStream&) { *priority = 0; });
}

Code StreamGetId(StreamHandle handle, unsigned long long* id) {
  if (AnyNull(id)) return Code::kInvalidValue;
  return WithStream(handle, [&](const CudaStream& stream) { *id = stream.id(); });
}

Code StreamGetCtx(StreamHandle handle, ContextHandle* context) {
  if (AnyNull(context)) return Code::kInvalidValue;
  return WithStream(handle,
                    [&](const CudaStream& stream) { *context = stream.context().handle(); });
}

// No stream belongs to a green context here.
Code StreamGetCtxV2(StreamHandle stream, ContextHandle* context, GreenContextHandle* green) {
  const Code code = StreamGetCtx(stream, context);
  if (code == Code::kSuccess && green != nullptr) *green = nullptr;
  return code;
}

Code StreamGetDevice(StreamHandle handle, int* device) {
  if (AnyNull(device)) return Code::kInvalidValue;
  return WithStream(handle,
                    [&](const CudaStream& stream) { *device = stream.context().ordinal(); });
}

Code StreamGetAttribute(StreamHandle handle, int attribute, LaunchAttribute::Value* value) {
  if (AnyNull(value)) return Code::kInvalidValue;
  const Current current;
  const StreamChoice stream(current, handle);
  if (!stream.ok()) return stream.code();
  return stream->GetAttribute(attribute, *value) ? Code::kSuccess : Code::kInvalidValue;
}

Code StreamSetAttribute(StreamHandle handle, int attribute, const LaunchAttribute::Value* value) {
  if (AnyNull(value)) return Code::kInvalidValue;
  const Current current;
  const StreamChoice stream(current, handle);
  if (!stream.ok()) return stream.code();
  return stream->SetAttribute(attribute, *value) ? Code::kSuccess : Code::kInvalidValue;
}

Code StreamCopyAttributes(StreamHandle to_handle, StreamHandle from_handle) {
  const Current current;
  const StreamChoice to(current, to_handle), from(current, from_handle);
  if (!to.ok() || !from.ok()) return to.ok() ? from.code() : to.code();
  to->CopyAttributes(*from);
  return Code::kSuccess;
}

// ---- host functions

Code AddHostCall(const StreamChoice& stream, const std::function<void(Code)>& call) {
  if (const Code code = stream.Allowed(); code != Code::kSuccess) return code;
  HostCalls& calls = HostCalls::Get();
  if (calls.AddAfterOthers(stream.shared(), call)) return Code::kSuccess;
  Session& session = stream->context().session();
  Result<Event> front = session.client().CreateEvent();
  if (!front.ok()) return session.GetCode(front.status());
  const Code code = stream.Run([&](const Stream& queue) { return queue.Record(*front); });
  if (code != Code::kSuccess) return code;
  if (calls.Add(stream.shared(), std::move(*front), call)) return Code::kSuccess;
  return Reject(Code::kOperatingSystem,
                "host function rejected: the system cannot create a thread");
}

// The function does not run after a failure.
Code LaunchHostFunc(StreamHandle handle, HostFunction function, void* data) {
  if (AnyNull(function)) return Code::kInvalidValue;
  const Current current;
  const StreamChoice stream(current, handle);
  if (!stream.ok()) return stream.code();
  if (stream.is_captured()) return stream.Capture(HostWork{{function, data}});
  return AddHostCall(stream, [function, data](Code code) {
    if (code == Code::kSuccess) function(data);
  });
}

// The mode selects how the executing thread waits; here it always sleeps.
Code LaunchHostFuncV2(StreamHandle handle, HostFunction function, void* data, unsigned) {
  return LaunchHostFunc(handle, function, data);
}

// Unlike a host function, a callback also runs after a failure, and receives the code of the
// failure. A graph cannot contain callbacks.
Code StreamAddCallback(StreamHandle handle, StreamCallback callback, void* data, unsigned flags) {
  if (AnyNull(callback) || flags != 0) return Code::kInvalidValue;
  const Current current;
  const StreamChoice stream(current, handle);
  return AddHostCall(stream, [handle, callback, data](Code code) { callback(handle, code, data); });
}

}  // namespace gpushared::drop_in
