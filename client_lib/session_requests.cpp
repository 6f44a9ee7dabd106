// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "client_lib/session.h"

namespace gpushared::client {

namespace {

Status CheckTime(const char* what, std::chrono::nanoseconds time) {
  if (time.count() >= 0 && static_cast<std::uint64_t>(time.count()) <= ipc::kRequestTimeNsMax) {
    return Status::Ok();
  }
  return Status(StatusCode::kInvalidArgument,
                std::string(what) + " is " + std::to_string(time.count()) + " ns, allowed: 0 to " +
                    std::to_string(ipc::kRequestTimeNsMax));
}

ipc::RequestRecord GetRecord(ipc::Op op, std::chrono::nanoseconds time) {
  return {.header = {.op = static_cast<std::uint8_t>(op)},
          .time_ns = static_cast<std::uint64_t>(time.count())};
}

}  // namespace

Status Session::BeginRequest(const std::shared_ptr<StreamRecord>& stream,
                             std::chrono::nanoseconds age) {
  if (Status status = Usable(); !status.ok()) return status;
  if (Status status = CheckTime("begin of a request rejected: its age", age); !status.ok()) {
    return status;
  }
  for (;;) {
    MutexLock lock(requests_mutex_);
    if (requests_.IsOpen(stream->number())) {
      return Status(StatusCode::kInvalidArgument, "begin of a request rejected: stream " +
                                                      std::to_string(stream->number()) +
                                                      " has one open, which must be ended first");
    }
    if (requests_.HasRoom(progress())) {
      const Result<std::uint64_t> begun = Submit(stream, GetRecord(ipc::Op::kBeginRequest, age));
      if (begun.ok()) requests_.Begin(stream->number());
      return begun.status();
    }
    const std::optional<StreamPoint> next = requests_.NextEnd();
    lock.Unlock();
    if (!next) {
      return Status(StatusCode::kLimitExceeded,
                    "begin of a request rejected: " + std::to_string(kOpenRequestsMax) +
                        " streams have one open, allowed: " + std::to_string(kOpenRequestsMax));
    }
    if (Status status = data_->plane->Await(*next); !status.ok()) return status;
  }
}

Status Session::EndRequest(const std::shared_ptr<StreamRecord>& stream) {
  if (Status status = Usable(); !status.ok()) return status;
  const MutexLock lock(requests_mutex_);
  if (!requests_.IsOpen(stream->number())) {
    return Status(
        StatusCode::kInvalidArgument,
        "end of a request rejected: stream " + std::to_string(stream->number()) + " has none open");
  }
  // The command is submitted even on a failed stream, so that the server records the request as
  // failed.
  const Result<std::uint64_t> ended = data_->plane->Submit(
      *stream, ipc::PlainRecord{.header = {.op = static_cast<std::uint8_t>(ipc::Op::kEndRequest)}});
  if (!ended.ok()) return ended.status();
  requests_.End({.stream = stream->number(), .sequence = *ended});
  return stream->failed() ? GetError(*stream) : Status::Ok();
}

Status Session::ExpectRequestIn(std::chrono::nanoseconds in) {
  if (Status status = CheckTime("hint rejected: the time to the next request", in); !status.ok()) {
    return status;
  }
  return Submit(default_stream_, GetRecord(ipc::Op::kExpectRequest, in)).status();
}

}  // namespace gpushared::client
