// SPDX-License-Identifier: Apache-2.0
// The client side of a server's administration: one question over its socket, one answer.

#ifndef GPUSHARED_SERVER_ADMIN_ASK_H_
#define GPUSHARED_SERVER_ADMIN_ASK_H_

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/unique_fd.h"
#include "ipc/wire/control.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::admin {

// The server itself waits a second for its workers; the rest is for a machine under load.
inline constexpr std::chrono::seconds kAnswerTimeMax{10};
// Of all pages together: far beyond what the sessions of 64 devices fill.
inline constexpr std::size_t kAnswerBytesMax = std::size_t{256} << 20;

// Asks the server whose socket is at `path`, and waits for its whole answer, a JSON object. Blocks
// for kAnswerTimeMax at most; may be called from any thread. A refusal is the server's own Status;
// kProtocolViolation: what answered is no gpushared server.
Result<nlohmann::json> Ask(const std::string& path, const ipc::Admin& question);

// An entrance that lasts as long as this object, and no longer than its process. Then nobody comes
// in any more, and its sessions end after the server's grace.
//
// Thread-compatible.
class Lease {
 public:
  // `terms`: the keys of an [[entrance]], as TOML; `who` is needed. Blocks as Ask does.
  static Result<Lease> Take(const std::string& path, const std::string& terms);

  const std::string& entrance() const { return entrance_; }
  // Clients connect there. Its folder can be mounted into a container.
  const std::string& socket() const { return socket_; }
  // Readable when the server has ended the lease.
  int fd() const { return connection_.get(); }
  // Returns when the server has ended it.
  void AwaitEnd() const;

 private:
  Lease(ipc::UniqueFd connection, std::string entrance, std::string socket)
      : connection_(std::move(connection)),
        entrance_(std::move(entrance)),
        socket_(std::move(socket)) {}

  ipc::UniqueFd connection_;
  std::string entrance_, socket_;
};

// Whether `why`, of Ask or Take, means that nobody is there to answer.
bool NobodyAnswers(const Status& why);

}  // namespace gpushared::admin

#endif  // GPUSHARED_SERVER_ADMIN_ASK_H_
