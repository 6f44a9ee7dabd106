// SPDX-License-Identifier: Apache-2.0
// How the end of work on a GPU becomes known, and when it was.

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

// When a batch of work ran. Never empty, never in the future, and no batch of a stream begins
// before the one ahead of it has ended.
struct BatchTimes {
  DeviceClock::time_point started;
  DeviceClock::time_point ended;
  bool are_exact = true;  // The times are as exact as this kind of marks can be.
};

// Marks on streams: one behind each batch of work, found by polling. A stream is named by its
// number, from 0. An error is one that leaves nobody to tell when the work ends.
//
// Confined to the device thread; the context is current on it.
class CompletionMarks {
 public:
  virtual ~CompletionMarks() = default;
  // The stream, which is idle and had no batch yet, is of a green context that outlives the marks,
  // not of the GPU's own. `context`: from cuCtxFromGreenCtx.
  virtual Status SetContext(std::size_t number, Stream stream, Context context) = 0;
  // Before the first work of a batch. `is_idle`: nothing is left on the stream, so the time of
  // its beginning is not the end of the batch ahead. `is_timed`: exact times are of use.
  virtual Status Open(std::size_t number, Stream stream, bool is_idle, bool is_timed) = 0;
  // Behind the last work of the batch. `is_timed`: exact times are still of use.
  virtual Status Close(std::size_t number, Stream stream, bool is_timed) = 0;
  // The oldest closed batch of the stream, when it has ended; each once.
  virtual Result<std::optional<BatchTimes>> Poll(std::size_t number, Stream stream) = 0;

  // kEvents: an event behind each batch, and one ahead where the stream was idle. The GPU measures
  // the duration, to about 0.5 µs. On the host's clock the batch lies between the looks that saw it
  // running and ended. Its times are never later than the truth, except for drift of the clocks.
  // Where times are of no use, an event without a time stamp stands behind the batch, and none
  // ahead: the GPU waits less for it. The times are the host's then.
  // kWrites: the stream writes a number to host memory. That is cheaper to look at, but the times
  // are the host's: submission, and the look that saw the end.
  static Result<std::unique_ptr<CompletionMarks>> Create(CompletionKind kind,
                                                         std::shared_ptr<CudaContext> context,
                                                         std::size_t streams);
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_COMPLETION_MARKS_H_
