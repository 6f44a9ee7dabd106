// SPDX-License-Identifier: Apache-2.0
#include "server/admin/ask.h"

#include <errno.h>
#include <poll.h>

#include <utility>

#include "ipc/unix_socket.h"

#include <nlohmann/json.hpp>

namespace gpushared::admin {
namespace {

Status TooLong() {
  return {StatusCode::kProtocolViolation,
          "the server's answer has more than " + std::to_string(kAnswerBytesMax >> 20) + " MiB"};
}

// The text of all pages, or the refusal that they carry.
Result<std::string> ReceiveAnswer(int socket, ipc::Deadline deadline) {
  std::string text;
  while (true) {
    const Result<ipc::Frame> frame = ipc::ReceiveFrame(socket, ipc::ServerFrameRules, deadline);
    if (!frame.ok()) return frame.status();
    const Result<ipc::AdminReply> page = ipc::DecodeReply<ipc::AdminReply>(*frame);
    if (!page.ok()) return page.status();
    if (text.size() + page->text.size() > kAnswerBytesMax) return TooLong();
    text += page->text;
    if (!page->is_last) continue;
    if (page->code != StatusCode::kOk) return Status(page->code, text);
    return text;
  }
}

// Asks and leaves the connection open.
Result<nlohmann::json> AskOn(Result<ipc::UniqueFd>& socket, const std::string& path,
                             const ipc::Admin& question) {
  const ipc::Deadline deadline = std::chrono::steady_clock::now() + kAnswerTimeMax;
  socket = ipc::ConnectUnix(path, deadline);
  if (!socket.ok()) return socket.status();
  // A server that refuses the connection itself answers without reading the question, so a
  // failed send is not the end of the story.
  const Status sent = ipc::SendMessage(socket->get(), 1, question, deadline);
  const Result<std::string> answer = ReceiveAnswer(socket->get(), deadline);
  if (!answer.ok()) {
    const bool said_nothing = answer.status().code() == StatusCode::kDisconnected;
    return said_nothing && !sent.ok() ? sent : answer.status();
  }
  nlohmann::json parsed = nlohmann::json::parse(*answer, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) {
    return Status(StatusCode::kProtocolViolation, "the server's answer is no JSON object");
  }
  return parsed;
}

}  // namespace

Result<nlohmann::json> Ask(const std::string& path, const ipc::Admin& question) {
  Result<ipc::UniqueFd> socket = ipc::UniqueFd();
  return AskOn(socket, path, question);
}

Result<Lease> Lease::Take(const std::string& path, const std::string& terms) {
  if (terms.size() > ipc::kLeaseTermsBytesMax) {
    return Status(StatusCode::kInvalidArgument,
                  "lease refused: its terms have " + std::to_string(terms.size()) +
                      " bytes, allowed are " + std::to_string(ipc::kLeaseTermsBytesMax));
  }
  Result<ipc::UniqueFd> connection = ipc::UniqueFd();
  const Result<nlohmann::json> answer =
      AskOn(connection, path, {.verb = ipc::AdminVerb::kLease, .terms = terms});
  if (!answer.ok()) return answer.status();
  const auto entrance = answer->find("entrance"), socket = answer->find("socket");
  if (entrance == answer->end() || !entrance->is_string() || socket == answer->end() ||
      !socket->is_string()) {
    return Status(StatusCode::kProtocolViolation, "the server's answer names no entrance");
  }
  return Lease(std::move(*connection), *entrance, *socket);
}

void Lease::AwaitEnd() const {
  pollfd ended = {.fd = connection_.get(), .events = POLLIN, .revents = 0};
  while (::poll(&ended, 1, -1) < 0 && errno == EINTR) {
  }
}

bool NobodyAnswers(const Status& why) {
  return why.code() == StatusCode::kUnavailable || why.code() == StatusCode::kDisconnected ||
         why.code() == StatusCode::kTimedOut;
}

}  // namespace gpushared::admin
