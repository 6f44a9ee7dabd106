// SPDX-License-Identifier: Apache-2.0
// The way of an observer to what runs on a device.

#ifndef GPUSHARED_SERVER_TELEMETRY_ADMIN_TRACE_WATCH_H_
#define GPUSHARED_SERVER_TELEMETRY_ADMIN_TRACE_WATCH_H_

#include <cstdint>
#include <string>
#include <utility>

#include "gpushared/result.h"

#include "ipc/unique_fd.h"
#include "server/telemetry/trace/reader.h"

namespace gpushared::admin {

// A device is traced for as long as this object, and no longer than its process. Its worker
// writes; the reader follows without asking anybody.
//
// Thread-compatible.
class TraceWatch {
 public:
  // `device`: as `devices` names it. Needs the right to observe. Blocks as Ask does; a rejection is
  // the server's own Status. kNotReady: the worker has not started, or ended before it answered.
  static Result<TraceWatch> Begin(const std::string& path, const std::string& device);

  trace::Reader& reader() { return reader_; }
  // The generation of the worker that is watched.
  std::uint32_t generation() const { return generation_; }
  // Whether that worker has ended. What it has written can still be read; another watch follows the
  // next worker.
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
