// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_STREAMS_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_STREAMS_H_

#include "client_lib/drop_in/default_stream.h"
#include "client_lib/drop_in/driver_types.h"
#include "client_lib/drop_in/gate/driver_functions.h"

namespace gpushared::drop_in::gate {

// Returns a handle that means the same stream in both forms of a function (default_stream.h).
inline StreamHandle WithoutForm(StreamHandle stream) {
  const bool is_per_thread =
      stream == nullptr && DefaultStreamScope::current() == DefaultStream::kPerThread;
  return is_per_thread ? kPerThreadStream : stream;
}

inline bool IsCapturing(StreamHandle stream) {
  int status = 0;
  return driver_functions.stream_is_capturing != nullptr &&
         driver_functions.stream_is_capturing(WithoutForm(stream), &status) == Code::kSuccess &&
         status != 0;
}

}  // namespace gpushared::drop_in::gate

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_STREAMS_H_
