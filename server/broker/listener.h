// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_LISTENER_H_
#define GPUSHARED_SERVER_BROKER_LISTENER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "gpushared/status.h"

#include "ipc/listening_socket.h"
#include "ipc/unbounded_calls.h"
#include "ipc/unique_fd.h"
#include "ipc/unix_socket.h"
#include "server/broker/access_rules.h"

namespace gpushared::server {

struct Endpoint;

// A connection whose first frame has arrived, with the identity of its peer. No data after that
// frame has been read from the socket.
struct Arrival {
  ipc::ClientSocket socket;  // Non-blocking.
  ipc::UniqueFd pidfd;
  Peer peer;
  ipc::Frame frame;                    // FirstFrameRules permits its type; not decoded yet.
  std::shared_ptr<Endpoint> endpoint;  // Endpoint of the connection; set by EndpointTable.
};

// Sends a final frame as far as the socket accepts it at once, and closes the socket. Suitable for
// short answers, because the send buffer of a new connection is empty.
void Reject(ipc::ClientSocket socket, std::uint32_t request, const Status& why);

// Accepts connections and waits for the first frame of each. The number and duration of these waits
// are bounded, so that silent peers cost little and are dropped soon.
//
// A new client is never rejected because of these bounds. If its uid has too many silent
// connections, the oldest of them is dropped. If all ordinary users together have too many, the
// oldest connection of the uid with the most is dropped. Root and the server's own uid have
// reserved places.
//
// Confined to the broker's thread.
class Listener {
 public:
  struct Limits {
    // Limits of connections without a first frame, for all ordinary users together and for one uid.
    std::size_t waiting_max = 128;
    std::size_t waiting_per_uid_max = 32;
    std::chrono::milliseconds first_frame_max{5000};
  };
  using ArrivalFunction = std::function<void(Arrival arrival)>;
  // Reports to the log why a connection was closed before its first frame. `who` is null if
  // unknown.
  using RejectionFunction = std::function<void(const Peer* who, const Status& why)>;

  // `closing` must outlive this object and all arrivals.
  Listener(boost::asio::io_context& context, ipc::UnboundedCalls& closing,
           ipc::ListeningSocket socket, Limits limits, std::uint32_t own_uid,
           ArrivalFunction on_arrival, RejectionFunction on_rejection);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  Status Start();
  // Stop accepting and accept again; new clients wait in the socket's queue in between.
  void Pause();
  void Resume();
  // Removes the socket file and drops all waiting connections.
  void Stop();

  std::size_t waiting() const { return waiting_.size(); }
  const std::string& path() const { return socket_.path(); }
  ipc::BorrowedSocket Borrow() const { return socket_.Borrow(); }

 private:
  struct Waiting;

  void WaitForConnection();
  void AcceptSome();
  void Admit(ipc::ClientSocket socket);
  void EnforceLimits(std::uint32_t uid);
  void DropOldest(std::uint32_t uid);
  std::size_t WaitingOfOtherUsers() const;
  void WaitForFrame(std::uint64_t number);
  void ReadFrame(std::uint64_t number);
  void GiveUp(std::uint64_t number, const Status& why);

  boost::asio::io_context& context_;
  ipc::UnboundedCalls& closing_;
  ipc::ListeningSocket socket_;
  Limits limits_;
  const std::uint32_t own_uid_;
  ArrivalFunction on_arrival_;
  RejectionFunction on_rejection_;
  boost::asio::posix::stream_descriptor readable_;  // Watches a duplicate of the listening socket.
  boost::asio::steady_timer retry_;
  bool is_paused_ = false;
  std::uint64_t last_number_ = 0;
  std::map<std::uint64_t, std::unique_ptr<Waiting>> waiting_;  // Oldest first.
  std::map<std::uint32_t, std::size_t> waiting_of_uid_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_LISTENER_H_
