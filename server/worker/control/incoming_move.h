// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_INCOMING_MOVE_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_INCOMING_MOVE_H_

#include <functional>
#include <memory>

#include <boost/asio/posix/stream_descriptor.hpp>

#include "gpushared/status.h"

#include "ipc/unique_fd.h"
#include "ipc/unix_socket.h"
#include "ipc/wire/channel.h"
#include "server/worker/control/saved_session.h"
#include "server/worker/control/session.h"

namespace gpushared::server {

// A session that arrives from another worker, until that worker commits the move or fails. Every
// message of the other worker is input.
//
// Confined to the control thread.
class IncomingMove : public std::enable_shared_from_this<IncomingMove> {
 public:
  struct Events {
    // Returns why the session cannot be accepted.
    std::function<Status(const Session& session)> check;
    // The session belongs to this worker, and has not been started.
    std::function<void(std::shared_ptr<Session> session)> arrived;
    // The session does not belong to this worker. Called last.
    std::function<void(const Status& why)> dropped;
  };
  IncomingMove(SessionEnvironment& environment, ipc::MoveIn expected, ipc::UniqueFd channel,
               Events events);
  IncomingMove(const IncomingMove&) = delete;
  IncomingMove& operator=(const IncomingMove&) = delete;

  void Start();

 private:
  void Watch();
  void OnReadable();
  void Handle(ipc::Attach attach, ipc::Frame& frame);
  void Handle(const ipc::MovedSession& moved, ipc::Frame& frame);
  void Handle(const ipc::MovedBuffer& buffer, ipc::Frame& frame);
  void Handle(const ipc::MoveCommit& commit, ipc::Frame& frame);
  Status CheckAttach(const ipc::Attach& attach) const;
  // Reads the two messages at the beginning of the state's file.
  Status ReadState(const ipc::MovedSession& sizes);
  void AdoptIfComplete();
  void Answer(const Status& status);
  void Drop(const Status& why);
  bool is_over() const { return !channel_.is_open(); }

  SessionEnvironment& environment_;
  const ipc::MoveIn expected_;
  Events events_;
  boost::asio::posix::stream_descriptor channel_;
  ipc::Outbox outbox_{ipc::Outbox::Kind::kSeqpacket};
  std::shared_ptr<Session> session_;
  MovedState moved_;
  bool has_state_ = false;
  bool is_adopting_ = false;
  bool is_ready_ = false;  // The other worker may commit.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_INCOMING_MOVE_H_
