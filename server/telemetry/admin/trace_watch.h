// SPDX-License-Identifier: Apache-2.0
// Observer's access to the execution trace of a device.

#ifndef GPUSHARED_SERVER_TELEMETRY_ADMIN_TRACE_WATCH_H_
#define GPUSHARED_SERVER_TELEMETRY_ADMIN_TRACE_WATCH_H_

#include <cstdint>
#include <string>
#include <utility>

#include "gpushared/result.h"

#include "ipc/unique_fd.h"
#include "server/telemetry/trace/reader.h"

namespace gpushared::admin {

// Keeps a device's trace active until this object is destroyed or its process exits. The worker
// writes the trace to shared memory, which the reader reads without further requests.
//
// Thread-compatible.
class TraceWatch {
 public:
  // `device`: a name as in `devices`. Requires the right to observe. Blocks like Ask. If the server
  // rejects the request, returns the server's Status. kNotReady: the worker has not started, or
  // exited before it answered.
  static Result<TraceWatch> Begin(const std::string& path, const std::string& device);

  trace::Reader& reader() { return reader_; }
  // Generation of the watched worker.
  std::uint32_t generation() const { return generation_; }
  // Returns true if that worker has exited. The trace it has written can still be read; the next
  // worker needs a new watch.
  bool HasEnded() const;

 private:
  TraceWatch(ipc::UniqueFd connection, trace::Reader reader, std::uint32_t generation)
      : connection_(std::move(connection)), reader_(std::move(reader)), generation_(generation) {}

  ipc::UniqueFd connection_;
  trace::Reader reader_;
  std::uint32_t generation_;
};

}  // namespace gpushared::admin

#endif  // GPUSHARED_SERVER_TELEMETRY_ADMIN_TRACE_WATCH_H_
