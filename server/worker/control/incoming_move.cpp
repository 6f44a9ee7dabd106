// SPDX-License-Identifier: Apache-2.0
#include "server/worker/control/incoming_move.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "gpushared/check.h"

#include "ipc/shared_segment.h"

namespace gpushared::server {
namespace {

Status Unexpected(const char* what) {
  return {StatusCode::kProtocolViolation, fmt::format("move rejected: {}", what)};
}

}  // namespace

IncomingMove::IncomingMove(SessionEnvironment& environment, ipc::MoveIn expected,
                           ipc::UniqueFd channel, Events events)
    : environment_(environment),
      expected_(std::move(expected)),
      events_(std::move(events)),
      channel_(environment.context, channel.Release()) {}

void IncomingMove::Start() { Watch(); }

void IncomingMove::Watch() {
  channel_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                      [self = shared_from_this()](const boost::system::error_code& error) {
                        if (!error && !self->is_over()) self->OnReadable();
                      });
}

void IncomingMove::OnReadable() {
  Result<std::optional<ipc::Frame>> frame =
      ipc::ReceiveChannelMessage(channel_.native_handle(), ipc::MoveRules);
  if (!frame.ok()) return Drop(frame.status());
  if (frame->has_value()) {
    const bool is_known = ipc::DecodeAs(ipc::MoveMessages(), **frame, [this, &frame](auto message) {
      if (!message.ok()) return Drop(message.status());
      Handle(*std::move(message), **frame);
    });
    Check(is_known, "the frame rules let nothing else through");
  }
  if (!is_over()) Watch();
}

Status IncomingMove::CheckAttach(const ipc::Attach& attach) const {
  const ipc::RegistrySession& row = expected_.row;
  const bool is_same = attach.session == row.session && attach.peer.pid == row.peer.pid &&
                       attach.peer.uid == row.peer.uid && attach.peer.gid == row.peer.gid &&
                       attach.quota_bytes == row.quota_bytes &&
                       attach.guaranteed_bytes == row.guaranteed_bytes &&
                       attach.isolation == row.isolation && attach.endpoint == row.endpoint &&
                       attach.endpoint_name == row.endpoint_name;
  return is_same ? Status() : Unexpected("the session is not the one that the broker announced");
}

void IncomingMove::Handle(ipc::Attach attach, ipc::Frame& frame) {
  if (session_ != nullptr) return Drop(Unexpected("two sessions arrive"));
  if (Status wrong = CheckAttach(attach); !wrong.ok()) return Drop(wrong);
  // Rights may have changed since the client connected.
  attach.is_trusted = expected_.is_trusted;
  attach.allowed_class = expected_.allowed_class;
  attach.client_class = expected_.row.client_class;
  attach.weight = expected_.row.weight;
  session_ = std::make_shared<Session>(environment_, std::move(attach), std::move(frame.fds[0]),
                                       std::move(frame.fds[1]));
  if (Status why = events_.check(*session_); !why.ok()) Drop(why);
}

Status IncomingMove::ReadState(const ipc::MovedSession& sizes) {
  std::vector<std::byte> session(sizes.session_bytes), client(sizes.client_bytes);
  const int file = moved_.state.get();
  if (Status read = ipc::ReadMemory(file, 0, session); !read.ok()) return read;
  if (Status read = ipc::ReadMemory(file, session.size(), client); !read.ok()) return read;
  Result<SavedSession> saved_session = ipc::Decode<SavedSession>(session);
  if (!saved_session.ok()) return saved_session.status();
  Result<SavedClient> saved_client = ipc::Decode<SavedClient>(client);
  if (!saved_client.ok()) return saved_client.status();
  moved_.session = *std::move(saved_session);
  moved_.client = *std::move(saved_client);
  moved_.images_offset = session.size() + client.size();
  return {};
}

void IncomingMove::Handle(const ipc::MovedSession& moved, ipc::Frame& frame) {
  if (session_ == nullptr || has_state_) return Drop(Unexpected("the state arrives too early"));
  has_state_ = true;
  moved_.doorbell = std::move(frame.fds[0]);
  moved_.commands = std::move(frame.fds[1]);
  moved_.completions = std::move(frame.fds[2]);
  moved_.page = std::move(frame.fds[3]);
  moved_.state = std::move(frame.fds[4]);
  moved_.memory = std::move(frame.fds[5]);
  if (Status status = ReadState(moved); !status.ok()) return Drop(status);
  AdoptIfComplete();
}

void IncomingMove::Handle(const ipc::MovedBuffer& buffer, ipc::Frame& frame) {
  if (!has_state_ || moved_.staging_buffers.size() == moved_.session.staging_buffers) {
    return Drop(Unexpected("an unknown staging buffer arrives"));
  }
  moved_.staging_buffers.push_back({.memory = std::move(frame.fds[0]), .bytes = buffer.bytes});
  AdoptIfComplete();
}

void IncomingMove::AdoptIfComplete() {
  if (is_adopting_ || moved_.staging_buffers.size() < moved_.session.staging_buffers) return;
  is_adopting_ = true;
  session_->Adopt(std::move(moved_), [self = shared_from_this()](const Status& status) {
    if (self->is_over()) return;
    if (!status.ok()) return self->Drop(status);
    self->is_ready_ = true;
    self->Answer(Status::Ok());
  });
}

void IncomingMove::Handle(const ipc::MoveCommit&, ipc::Frame&) {
  if (!is_ready_) return Drop(Unexpected("the commit arrives too early"));
  boost::system::error_code ignored;
  channel_.close(ignored);
  events_.arrived(std::exchange(session_, nullptr));
}

void IncomingMove::Answer(const Status& status) {
  const ipc::ChannelReply reply = {.code = status.code(), .text = std::string(status.message())};
  const Status queued = outbox_.Add(0, reply);
  // The channel has room, because this is the only message in this direction.
  const Result<bool> sent =
      queued.ok() ? outbox_.Flush(channel_.native_handle()) : Result<bool>(queued);
  if (status.ok() && (!sent.ok() || !*sent)) {
    Drop({StatusCode::kUnavailable, "the other worker has ended"});
  }
}

// Without a commit the session belongs to the other worker.
void IncomingMove::Drop(const Status& why) {
  if (is_over()) return;
  is_ready_ = false;
  Answer(why);
  boost::system::error_code ignored;
  channel_.close(ignored);
  if (session_ != nullptr) session_->Forsake();
  session_.reset();
  events_.dropped(why);
}

}  // namespace gpushared::server
