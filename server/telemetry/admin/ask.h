// SPDX-License-Identifier: Apache-2.0
// Client side of the admin protocol: one request over the server's socket, one answer.

#ifndef GPUSHARED_SERVER_TELEMETRY_ADMIN_ASK_H_
#define GPUSHARED_SERVER_TELEMETRY_ADMIN_ASK_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/unique_fd.h"
#include "ipc/unix_socket.h"
#include "ipc/wire/control.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::admin {

// Maximum wait for an answer: the second that the server waits for its workers, and time for a
// machine under load.
inline constexpr std::chrono::seconds kAnswerTimeMax{10};
// Limit for all pages of an answer; far above the size of an answer about the sessions of 64
// devices.
inline constexpr std::size_t kAnswerBytesMax = std::size_t{256} << 20;

// An admin request in progress, for programs that must not block on the answer.
//
// Thread-compatible.
class Inquiry {
 public:
  // Connects and sends the request. Waits until `deadline` if the server's queue of connections is
  // full.
  static Result<Inquiry> Begin(const std::string& path, const ipc::Admin& question,
                               ipc::Deadline deadline);

  // Becomes readable when Receive can make progress.
  int fd() const { return connection_.get(); }
  // Returns the answer, a JSON object, once it is complete, and nothing before. Does not block. The
  // Inquiry must not be used after an answer or an error.
  Result<std::optional<nlohmann::json>> Receive();
  // Transfers the connection to the caller. Some requests depend on it even after the answer: a
  // lease lasts as long as its connection.
  ipc::UniqueFd TakeConnection() { return std::move(connection_); }

 private:
  Inquiry(ipc::UniqueFd connection, Status sent)
      : connection_(std::move(connection)), sent_(std::move(sent)) {}

  // Adds a page. Returns true if it was the last one.
  Result<bool> TakePage(const ipc::Frame& frame);

  ipc::UniqueFd connection_;
  Status sent_;
  ipc::FrameReader reader_{ipc::ServerFrameRules};
  std::string text_;  // Pages received so far.
};

// Sends a request to the server at `path`, and waits for its complete answer, a JSON object. Blocks
// for at most kAnswerTimeMax; may be called from any thread. If the server rejects the request,
// returns the server's Status. kProtocolViolation: the peer is not a gpushared server.
Result<nlohmann::json> Ask(const std::string& path, const ipc::Admin& question);

// A leased endpoint. The lease ends with this object, or when its process exits. The endpoint then
// admits no clients, and its sessions are ended after the server's grace period.
//
// Thread-compatible.
class Lease {
 public:
  // `terms`: the keys of an [[endpoint]] as TOML; `who` is required. Blocks like Ask.
  static Result<Lease> Take(const std::string& path, const std::string& terms);

  const std::string& endpoint() const { return endpoint_; }
  // Path of the socket for clients. Its directory can be mounted into a container.
  const std::string& socket() const { return socket_; }
  // Becomes readable when the server has ended the lease.
  int fd() const { return connection_.get(); }
  // Blocks until the server has ended the lease.
  void AwaitEnd() const;
  // Makes the server close the lease's connection, and returns when this is done or after
  // kAnswerTimeMax. The lease then ends and its name is free, unless the terms allow a resumption
  // (resume_within).
  void End() const;

 private:
  Lease(ipc::UniqueFd connection, std::string endpoint, std::string socket)
      : connection_(std::move(connection)),
        endpoint_(std::move(endpoint)),
        socket_(std::move(socket)) {}

  ipc::UniqueFd connection_;
  std::string endpoint_, socket_;
};

// Returns true if `why`, returned by Ask or Take, means that no server is running.
bool IsUnreachable(const Status& why);

}  // namespace gpushared::admin

#endif  // GPUSHARED_SERVER_TELEMETRY_ADMIN_ASK_H_
