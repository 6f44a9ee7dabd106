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

#include "client_lib/visible_devices.h"
#include "ipc/unique_fd.h"
#include "ipc/unix_socket.h"
#include "ipc/wire/control.h"

namespace gpushared::client {

// Socket of one session: performs control round trips, and records whether and why the session has
// ended.
//
// Thread-safe. Round trips are serialized: a caller waits for those before it.
class Connection {
 public:
  struct Opened {
    std::unique_ptr<Connection> connection;
    ipc::Welcome welcome;
    std::vector<ipc::UniqueFd> fds;  // In the order that ipc::MessageType::kWelcome documents.
  };
  // Whether the client submits its work to the server, or directly to the driver.
  enum class Kind : std::uint8_t { kSubmitting, kGated };
  // Open performs the handshake, and retries once if the server closed the connection before its
  // answer. TryOpen makes a single attempt.
  static Result<Opened> Open(const ClientOptions& asked, Kind kind = Kind::kSubmitting);
  static Result<Opened> TryOpen(const ClientOptions& asked, Kind kind = Kind::kSubmitting);
  // Lists the devices over a separate, short connection.
  static Result<ipc::DeviceList> ListDevices(const ClientOptions& options);
  // Lists the devices in the form in which environment variables refer to them.
  static Result<std::vector<KnownDevice>> ListKnownDevices(const ClientOptions& options);
  // Returns `options` completed from the environment. Asks the server for its devices if a variable
  // refers to devices.
  static Result<ClientOptions> WithEnvironment(const ClientOptions& options);

  // Sends `request` and waits for the answer. Returns the error if the server rejects the request.
  // A failure of the connection (EOF, a missing or malformed answer) ends the session.
  // `received_fds` may be null if Reply carries no descriptors.
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

  // Sends `request` without waiting; the answer will be dropped. Returns false, and sends nothing,
  // if kPostedMax answers are still outstanding or another thread is in a round trip. Returns true
  // if the session has ended, because the request is then obsolete.
  template <typename Request>
  bool TryPost(const Request& request) {
    return TryPostFrame(static_cast<std::uint16_t>(Request::kType), ipc::Encode(request));
  }
  // Waits until a further request can be posted, at most for the control timeout.
  Status AwaitPosted();

  // Polls whether the server has ended the session, without waiting for the server; returns false
  // if it has. After a bare EOF, asks the broker for the reason, once and for at most kWhyTimeout.
  bool CheckAlive();

  // Value of ClientOptions::ends_on_interrupt, set by the program or the environment.
  bool ends_on_interrupt() const { return ends_on_interrupt_; }

  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Returns why the session ended; Ok while it is alive.
  Status end_status() const;
  // Ends the session and wakes a thread in a round trip. Only the first reason is kept.
  void End(Status reason);
  // Waits, at most kWhyTimeout, until the broker has recorded the end of the session, regardless of
  // the reason.
  Status AwaitEnd() const { return AskBroker().status(); }

 private:
  static constexpr auto kWhyTimeout = std::chrono::seconds(2);
  // Request number of the first request of a connection, usually the handshake.
  static constexpr std::uint32_t kFirstRequest = 1;
  // Limit of outstanding answers. Any socket buffer holds this many frames in each direction. With
  // more, both sides could block, because a server that cannot send an answer reads no request.
  static constexpr std::size_t kPostedMax = 32;

  Connection(ipc::UniqueFd socket, std::string path, std::chrono::nanoseconds timeout);

  Result<ipc::Frame> RoundTrip(std::uint16_t type, std::vector<std::byte> payload,
                               std::span<const int> fds);
  bool TryPostFrame(std::uint16_t type, std::vector<std::byte> payload);
  // Processes the frames that have arrived, without waiting. Returns false if the session has
  // ended.
  bool ReadArrived() GPUSHARED_REQUIRES(round_trip_);
  // Receives one frame, which must answer a posted request.
  Status ReadPosted(ipc::Deadline deadline) GPUSHARED_REQUIRES(round_trip_);
  // Receives the next frame that does not answer a posted request.
  Result<ipc::Frame> ReceiveUnlessPosted(ipc::Deadline deadline) GPUSHARED_REQUIRES(round_trip_);
  // Ends the session after a failed send or receive; returns the reason why it ended.
  Status EndAfter(const Status& failure);
  // Returns why the session ended, as the broker recorded it. If the broker gives no reason within
  // kWhyTimeout, the Status states that.
  Status AskWhy() const;
  Result<ipc::Ended> AskBroker() const;
  ipc::Deadline NewDeadline() const;
  // Returns the deadline for an answer. LoadModule has none, because loads queue in the server and
  // each takes up to its --load-limit. The server enforces that limit, and if the server dies, EOF
  // ends the wait.
  ipc::Deadline AnswerDeadline(std::uint16_t type) const;

  const ipc::UniqueFd socket_;
  const std::string path_;
  const std::chrono::nanoseconds timeout_;
  // Constant after Open.
  std::uint64_t session_ = 0;
  bool ends_on_interrupt_ = false;

  Mutex round_trip_;  // Also guards the byte stream of the socket.
  std::uint32_t next_request_ GPUSHARED_GUARDED_BY(round_trip_) = kFirstRequest + 1;
  // Requests whose answers will be dropped.
  std::unordered_set<std::uint32_t> posted_ GPUSHARED_GUARDED_BY(round_trip_);

  std::atomic<bool> ended_{false};
  mutable Mutex end_mutex_;
  Status end_status_ GPUSHARED_GUARDED_BY(end_mutex_);  // Stored before ended_.
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_CONNECTION_H_
