// SPDX-License-Identifier: Apache-2.0
// The calls of the CUDA runtime: streams and events.
#include <cuda_runtime_api.h>

#include "tests/corpus/cudart/runtime.h"

using gpushared::Event;
using gpushared::EventTiming;
using gpushared::Result;
using gpushared::Stream;
using gpushared::cudart::Noted;
using gpushared::cudart::Runtime;

namespace {

cudaError_t NoHandle() { return Noted(cudaErrorInvalidResourceHandle); }

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  const bool is_blocking = (flags & cudaStreamNonBlocking) == 0;
  const Result<cudaStream_t> stream = Runtime::Instance().AddStream(is_blocking);
  if (stream.ok()) *out = *stream;
  return Noted(stream.status());
}
cudaError_t cudaStreamCreate(cudaStream_t* out) {
  return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int /*priority*/) {
  return cudaStreamCreateWithFlags(out, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return Noted(Runtime::Instance().RemoveStream(stream));
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const Stream* const stream = Runtime::Instance().Ordered(handle);
  return stream == nullptr ? NoHandle() : Noted(stream->Synchronize());
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const Stream* const stream = Runtime::Instance().Ordered(handle);
  return stream == nullptr ? NoHandle() : Noted(stream->Query());
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned /*flags*/) {
  const Stream* const stream = Runtime::Instance().Ordered(handle);
  const Event event = Runtime::Instance().FindEvent(event_handle);
  if (stream == nullptr || !event.valid()) return NoHandle();
  return Noted(stream->Wait(event));
}
cudaError_t cudaStreamIsCapturing(cudaStream_t /*stream*/, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
// Waits for the stream and then calls the function. This keeps the order, but blocks the caller.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  const cudaError_t waited = cudaStreamSynchronize(stream);
  if (waited == cudaSuccess) function(argument);
  return waited;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  const EventTiming timing =
      (flags & cudaEventDisableTiming) == 0 ? EventTiming::kOn : EventTiming::kOff;
  const Result<cudaEvent_t> event = Runtime::Instance().AddEvent(timing);
  if (event.ok()) *out = *event;
  return Noted(event.status());
}
cudaError_t cudaEventCreate(cudaEvent_t* out) {
  return cudaEventCreateWithFlags(out, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return Noted(Runtime::Instance().RemoveEvent(event));
}
cudaError_t cudaEventRecord(cudaEvent_t event_handle, cudaStream_t handle) {
  const Stream* const stream = Runtime::Instance().Ordered(handle);
  const Event event = Runtime::Instance().FindEvent(event_handle);
  if (stream == nullptr || !event.valid()) return NoHandle();
  return Noted(stream->Record(event));
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  const Event event = Runtime::Instance().FindEvent(handle);
  return event.valid() ? Noted(event.Synchronize()) : NoHandle();
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const Event event = Runtime::Instance().FindEvent(handle);
  return event.valid() ? Noted(event.Query()) : NoHandle();
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const Event first = Runtime::Instance().FindEvent(start);
  const Event last = Runtime::Instance().FindEvent(end);
  if (!first.valid() || !last.valid()) return NoHandle();
  const Result<std::chrono::nanoseconds> elapsed = Event::ElapsedTime(first, last);
  if (elapsed.ok()) *milliseconds = static_cast<float>(elapsed->count()) / 1e6f;
  return Noted(elapsed.status());
}

}  // extern "C"
