// SPDX-License-Identifier: Apache-2.0
// Detects the end of work on a GPU and its time.

#ifndef GPUSHARED_SERVER_DEVICE_CUDA_COMPLETION_MARKS_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_COMPLETION_MARKS_H_

#include <cstddef>
#include <memory>
#include <optional>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/cuda/completion_kind.h"
#include "server/device/cuda/cuda_context.h"
#include "server/device/device.h"

namespace gpushared::device::cuda {

// Time span of a batch of work. Never empty and never in the future; a batch of a stream does not
// start before the previous one has ended.
struct BatchTimes {
  DeviceClock::time_point started;
  DeviceClock::time_point ended;
  bool are_exact = true;  // The times are as exact as these marks allow.
};

// Marks on streams: one follows each batch of work and is polled. Streams are identified by their
// number, from 0. After an error the end of the work can no longer be detected.
//
// Confined to the device thread; the context is current on it.
class CompletionMarks {
 public:
  virtual ~CompletionMarks() = default;
  // Declares that the stream, which is idle and had no batch yet, belongs to a green context that
  // outlives the marks. `context`: from cuCtxFromGreenCtx.
  virtual Status SetContext(std::size_t number, Stream stream, Context context) = 0;
  // Called before the first work of a batch. `is_idle`: the stream is empty, so the batch does not
  // start when the previous one ends. `is_timed`: the caller needs exact times.
  virtual Status Open(std::size_t number, Stream stream, bool is_idle, bool is_timed) = 0;
  // Called after the last work of the batch. `is_timed`: the caller still needs exact times.
  virtual Status Close(std::size_t number, Stream stream, bool is_timed) = 0;
  // Returns the oldest closed batch of the stream if it has ended. Each batch is returned once.
  virtual Result<std::optional<BatchTimes>> Poll(std::size_t number, Stream stream) = 0;

  // kEvents: an event after each batch, and one before it if the stream was idle or the event after
  // the previous batch has no time stamp. The GPU measures the duration, to about 0.5 µs. On the
  // host's clock, the batch ends between the last poll that found it running and the first one that
  // found it ended. Its times are never later than the truth, except for clock drift. If the caller
  // does not need times, an event without a time stamp follows the batch and none precedes it,
  // because the GPU waits less for such an event; the times are then the host's. kWrites: the
  // stream writes a number to host memory. That is cheaper to poll, but the times are always the
  // host's: from the submission to the poll that detected the end.
  static Result<std::unique_ptr<CompletionMarks>> Create(CompletionKind kind,
                                                         std::shared_ptr<CudaContext> context,
                                                         std::size_t streams);
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_COMPLETION_MARKS_H_
