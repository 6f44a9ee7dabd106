// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_CONNECTION_H_
#define GPUSHARED_CLIENT_LIB_CONNECTION_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gpushared/client.h"
#include "gpushared/mutex.h"
#include "gpushared/result.h"

#include "ipc/unique_fd.h"
#include "ipc/unix_socket.h"
#include "ipc/wire/control.h"

namespace gpushared::client {

// The socket of one session: control round trips, and the place that knows whether and why
// the session has ended.
//
// Thread-safe. One round trip at a time; a caller waits for those before it.
class Connection {
 public:
  struct Opened {
    std::unique_ptr<Connection> connection;
    ipc::Welcome welcome;
    std::vector<ipc::UniqueFd> fds;  // In the order of ipc::MessageType::kWelcome.
  };
  // The handshake; once more where the server went away before it said anything.
  static Result<Opened> Open(const ClientOptions& asked);
  // The handshake, once.
  static Result<Opened> TryOpen(const ClientOptions& asked);
  // A connection of its own that asks for nothing else.
  static Result<ipc::DeviceList> ListDevices(const ClientOptions& options);
  // The options, with what the environment says where they say nothing. Asks the server for its
  // devices if a variable is about them.
  static Result<ClientOptions> WithEnvironment(const ClientOptions& options);

  // Sends `request` and waits for its answer. A rejection is returned; what breaks the session
  // (EOF, an answer that does not come, a wrong one) ends it. `received_fds` may be null when
  // Reply carries none.
  template <typename Reply, typename Request>
  Result<Reply> Ask(const Request& request, std::span<const int> fds = {},
                    std::vector<ipc::UniqueFd>* received_fds = nullptr) {
    Result<ipc::Frame> frame =
        RoundTrip(static_cast<std::uint16_t>(Request::kType), ipc::Encode(request), fds);
    if (!frame.ok()) return frame.status();
    Result<Reply> reply = ipc::DecodeReply<Reply>(*frame);
    if (!reply.ok() && reply.status().code() == StatusCode::kProtocolViolation) {
      End(reply.status());
    }
    if (reply.ok() && received_fds != nullptr) *received_fds = std::move(frame->fds);
    return reply;
  }

  // Sends `request` and does not wait; its answer will be dropped, whatever it says. False, and
  // nothing is sent, while kPostedMax answers are still to come or somebody is in a round trip.
  template <typename Request>
  bool TryPost(const Request& request) {
    return TryPostFrame(static_cast<std::uint16_t>(Request::kType), ipc::Encode(request));
  }
  // Waits until fewer answers are to come, for as long as for an answer.
  Status AwaitPosted();

  // Looks, without waiting, whether the server has ended the session. False when it has ended.
  // Asks the broker for the reason if there was only an EOF: at most kWhyTimeout, once.
  bool CheckAlive();

  // As the client or its environment asked; see ClientOptions.
  bool ends_on_interrupt() const { return ends_on_interrupt_; }

  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Why it ended; Ok while it lives.
  Status end_status() const;
  // Ends the session; only the first reason counts. Wakes a thread in a round trip.
  void End(Status reason);
  // Waits until the broker knows of the end, whatever its reason: at most kWhyTimeout.
  Status AwaitEnd() const { return AskBroker().status(); }

 private:
  static constexpr auto kWhyTimeout = std::chrono::seconds(2);
  // The number of a connection's first request, mostly the handshake.
  static constexpr std::uint32_t kFirstRequest = 1;
  // So many frames, in each direction, that any socket's buffers hold them: a server that cannot
  // send an answer does not read the next request either.
  static constexpr std::size_t kPostedMax = 32;

  Connection(ipc::UniqueFd socket, std::string path, std::chrono::nanoseconds timeout);

  Result<ipc::Frame> RoundTrip(std::uint16_t type, std::vector<std::byte> payload,
                               std::span<const int> fds);
  bool TryPostFrame(std::uint16_t type, std::vector<std::byte> payload);
  // Reads what has arrived, without waiting. False: the session has ended.
  bool ReadArrived() GPUSHARED_REQUIRES(round_trip_);
  // One frame that is the answer to a posted request.
  Status ReadPosted(ipc::Deadline deadline) GPUSHARED_REQUIRES(round_trip_);
  // The next frame that is not the answer to a posted request.
  Result<ipc::Frame> ReceiveUnlessPosted(ipc::Deadline deadline) GPUSHARED_REQUIRES(round_trip_);
  // Ends the session after a failed send or receive; returns the reason.
  Status EndAfter(const Status& failure);
  // Why the session ended, as the broker knows it, or that it does not say. Takes at most
  // kWhyTimeout, whatever answers.
  Status AskWhy() const;
  Result<ipc::Ended> AskBroker() const;
  ipc::Deadline NewDeadline() const;
  // Loading a module waits behind those of others and takes as long as the server's --load-limit
  // allows. The server bounds that; a server that dies ends the wait.
  ipc::Deadline AnswerDeadline(std::uint16_t type) const;

  const ipc::UniqueFd socket_;
  const std::string path_;
  const std::chrono::nanoseconds timeout_;
  // Constant after Open.
  std::uint64_t session_ = 0;
  bool ends_on_interrupt_ = false;

  Mutex round_trip_;  // Guards the socket's byte stream, too.
  std::uint32_t next_request_ GPUSHARED_GUARDED_BY(round_trip_) = kFirstRequest + 1;
  // Requests whose answers are dropped.
  std::unordered_set<std::uint32_t> posted_ GPUSHARED_GUARDED_BY(round_trip_);

  std::atomic<bool> ended_{false};
  mutable Mutex end_mutex_;
  Status end_status_ GPUSHARED_GUARDED_BY(end_mutex_);  // ended_ is stored after it.
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_CONNECTION_H_
