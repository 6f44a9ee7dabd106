// SPDX-License-Identifier: Apache-2.0
// The client side of a server's administration: one question over its socket, one answer.

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

// The server itself waits a second for its workers; the rest is for a machine under load.
inline constexpr std::chrono::seconds kAnswerTimeMax{10};
// Of all pages together: far beyond what the sessions of 64 devices fill.
inline constexpr std::size_t kAnswerBytesMax = std::size_t{256} << 20;

// One question that is under way, for programs that have other things to do meanwhile.
//
// Thread-compatible.
class Inquiry {
 public:
  // Connects and asks. Waits until `deadline` where the server lets others wait, too.
  static Result<Inquiry> Begin(const std::string& path, const ipc::Admin& question,
                               ipc::Deadline deadline);

  // Readable when Receive has something to do.
  int fd() const { return connection_.get(); }
  // The answer, a JSON object, as soon as all of it has come; nothing before. Does not block. After
  // an answer or an error this object is finished.
  Result<std::optional<nlohmann::json>> Receive();
  // The connection, which some answers leave with a meaning.
  ipc::UniqueFd TakeConnection() { return std::move(connection_); }

 private:
  Inquiry(ipc::UniqueFd connection, Status sent)
      : connection_(std::move(connection)), sent_(std::move(sent)) {}

  // Whether it was the last page.
  Result<bool> TakePage(const ipc::Frame& frame);

  ipc::UniqueFd connection_;
  Status sent_;
  ipc::FrameReader reader_{ipc::ServerFrameRules};
  std::string text_;  // The pages so far.
};

// Asks the server whose socket is at `path`, and waits for its whole answer, a JSON object. Blocks
// for kAnswerTimeMax at most; may be called from any thread. A rejection is the server's own
// Status; kProtocolViolation: what answered is no gpushared server.
Result<nlohmann::json> Ask(const std::string& path, const ipc::Admin& question);

// An endpoint that lasts as long as this object, and no longer than its process. Then nobody comes
// in any more, and its sessions end after the server's grace.
//
// Thread-compatible.
class Lease {
 public:
  // `terms`: the keys of an [[endpoint]], as TOML; `who` is needed. Blocks as Ask does.
  static Result<Lease> Take(const std::string& path, const std::string& terms);

  const std::string& endpoint() const { return endpoint_; }
  // Clients connect there. Its directory can be mounted into a container.
  const std::string& socket() const { return socket_; }
  // Readable when the server has ended the lease.
  int fd() const { return connection_.get(); }
  // Returns when the server has ended it.
  void AwaitEnd() const;

 private:
  Lease(ipc::UniqueFd connection, std::string endpoint, std::string socket)
      : connection_(std::move(connection)),
        endpoint_(std::move(endpoint)),
        socket_(std::move(socket)) {}

  ipc::UniqueFd connection_;
  std::string endpoint_, socket_;
};

// Whether `why`, of Ask or Take, means that nobody is there to answer.
bool NobodyAnswers(const Status& why);

}  // namespace gpushared::admin

#endif  // GPUSHARED_SERVER_TELEMETRY_ADMIN_ASK_H_
