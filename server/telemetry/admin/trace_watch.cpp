// SPDX-License-Identifier: Apache-2.0
#include "server/telemetry/admin/trace_watch.h"

#include <poll.h>

#include <chrono>

#include "ipc/unix_socket.h"
#include "ipc/wire/control.h"
#include "server/telemetry/admin/ask.h"

namespace gpushared::admin {

Result<TraceWatch> TraceWatch::Begin(const std::string& path, const std::string& device) {
  const ipc::Deadline deadline = std::chrono::steady_clock::now() + kAnswerTimeMax;
  Result<ipc::UniqueFd> connection = ipc::ConnectUnix(path, deadline);
  if (!connection.ok()) return connection.status();
  const ipc::Admin question = {.verb = ipc::AdminVerb::kTrace, .terms = device};
  // A server that rejects the connection answers without reading the request.
  const Status sent = ipc::SendMessage(connection->get(), 1, question, deadline);
  Result<ipc::Frame> frame = ipc::ReceiveFrame(connection->get(), ipc::ServerFrameRules, deadline);
  if (!frame.ok() && !sent.ok()) return sent;
  // The server passed the connection on to a worker that was about to exit.
  if (frame.status().code() == StatusCode::kDisconnected) {
    return Status(StatusCode::kNotReady,
                  "trace rejected: the worker of device " + device + " ended before it answered");
  }
  if (!frame.ok()) return frame.status();
  const Result<ipc::TraceOpened> opened = ipc::DecodeReply<ipc::TraceOpened>(*frame);
  if (!opened.ok()) return opened.status();
  if (opened->layout != trace::kLayoutNumber) {
    return Status(StatusCode::kVersionMismatch,
                  "trace rejected: the server writes a layout that this program cannot read");
  }
  Result<trace::Reader> reader = trace::Reader::Open(std::move(frame->fds.at(0)));
  if (!reader.ok()) return reader.status();
  return TraceWatch(*std::move(connection), *std::move(reader), opened->generation);
}

bool TraceWatch::HasEnded() const {
  pollfd ended = {.fd = connection_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, 0) > 0;
}

}  // namespace gpushared::admin
