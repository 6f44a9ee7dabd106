// SPDX-License-Identifier: Apache-2.0
#include "server/telemetry/admin/ask.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <utility>

#include "server/telemetry/admin/user_name.h"

#include <nlohmann/json.hpp>

namespace gpushared::admin {
namespace {

Status TooLong() {
  return {StatusCode::kProtocolViolation,
          "the server's answer has more than " + std::to_string(kAnswerBytesMax >> 20) + " MiB"};
}

// Waits for the complete answer.
Result<nlohmann::json> Await(Inquiry& inquiry, ipc::Deadline deadline) {
  while (true) {
    Result<std::optional<nlohmann::json>> answer = inquiry.Receive();
    if (!answer.ok()) return answer.status();
    if (*answer) return *std::move(*answer);
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      return Status(StatusCode::kTimedOut, "the server did not answer in time");
    }
    pollfd ready = {.fd = inquiry.fd(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, static_cast<int>(left.count())) < 0 && errno != EINTR) {
      return Status(StatusCode::kInternal, "waiting for the server's answer failed");
    }
  }
}

void AddUserNames(nlohmann::json& answer) {
  const auto clients = answer.find("clients");
  if (clients == answer.end() || !clients->is_array()) return;
  UserNames users;
  for (nlohmann::json& client : *clients) {
    if (!client.is_object()) continue;
    const auto uid = client.find("uid");
    if (uid != client.end() && uid->is_number_unsigned()) client["user"] = users.Get(uid->dump());
  }
}

}  // namespace

Result<Inquiry> Inquiry::Begin(const std::string& path, const ipc::Admin& question,
                               ipc::Deadline deadline) {
  Result<ipc::UniqueFd> connection = ipc::ConnectUnix(path, deadline);
  if (!connection.ok()) return connection.status();
  // A server that rejects the connection answers without reading the request, so its answer can
  // still be received after the send has failed.
  Status sent = ipc::SendMessage(connection->get(), 1, question, deadline);
  return Inquiry(std::move(*connection), std::move(sent));
}

Result<bool> Inquiry::TakePage(const ipc::Frame& frame) {
  const Result<ipc::AdminReply> page = ipc::DecodeReply<ipc::AdminReply>(frame);
  if (!page.ok()) return page.status();
  if (text_.size() + page->text.size() > kAnswerBytesMax) return TooLong();
  text_ += page->text;
  if (!page->is_last) return false;
  if (page->code != StatusCode::kOk) return Status(page->code, text_);
  return true;
}

Result<std::optional<nlohmann::json>> Inquiry::Receive() {
  while (true) {
    ipc::Frame frame;
    const Result<ipc::FrameReader::Progress> progress = reader_.Read(connection_.get(), frame);
    if (!progress.ok()) return progress.status();
    if (*progress == ipc::FrameReader::Progress::kWouldBlock)
      return std::optional<nlohmann::json>();
    if (*progress == ipc::FrameReader::Progress::kClosed) {
      if (!sent_.ok()) return sent_;
      return Status(StatusCode::kDisconnected, "the other end has closed the connection");
    }
    const Result<bool> is_whole = TakePage(frame);
    if (!is_whole.ok()) return is_whole.status();
    if (*is_whole) break;
  }
  nlohmann::json parsed = nlohmann::json::parse(text_, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) {
    return Status(StatusCode::kProtocolViolation, "the server's answer is no JSON object");
  }
  return std::optional(std::move(parsed));
}

Result<nlohmann::json> Ask(const std::string& path, const ipc::Admin& question) {
  const ipc::Deadline deadline = std::chrono::steady_clock::now() + kAnswerTimeMax;
  Result<Inquiry> inquiry = Inquiry::Begin(path, question, deadline);
  if (!inquiry.ok()) return inquiry.status();
  Result<nlohmann::json> answer = Await(*inquiry, deadline);
  if (answer.ok()) AddUserNames(*answer);
  return answer;
}

Result<Lease> Lease::Take(const std::string& path, const std::string& terms) {
  if (terms.size() > ipc::kLeaseTermsBytesMax) {
    return Status(StatusCode::kInvalidArgument,
                  "lease rejected: its terms have " + std::to_string(terms.size()) +
                      " bytes, allowed: " + std::to_string(ipc::kLeaseTermsBytesMax));
  }
  const ipc::Deadline deadline = std::chrono::steady_clock::now() + kAnswerTimeMax;
  Result<Inquiry> inquiry =
      Inquiry::Begin(path, {.verb = ipc::AdminVerb::kLease, .terms = terms}, deadline);
  if (!inquiry.ok()) return inquiry.status();
  const Result<nlohmann::json> answer = Await(*inquiry, deadline);
  if (!answer.ok()) return answer.status();
  const auto endpoint = answer->find("endpoint"), socket = answer->find("socket");
  if (endpoint == answer->end() || !endpoint->is_string() || socket == answer->end() ||
      !socket->is_string()) {
    return Status(StatusCode::kProtocolViolation, "the server's answer names no endpoint");
  }
  return Lease(inquiry->TakeConnection(), *endpoint, *socket);
}

void Lease::AwaitEnd() const {
  pollfd ended = {.fd = connection_.get(), .events = POLLIN, .revents = 0};
  while (::poll(&ended, 1, -1) < 0 && errno == EINTR) {
  }
}

void Lease::End() const {
  // The server closes the connection, because it accepts no further message there.
  (void)::send(connection_.get(), "", 1, MSG_NOSIGNAL);
  pollfd ended = {.fd = connection_.get(), .events = POLLIN, .revents = 0};
  constexpr std::chrono::milliseconds kMost = kAnswerTimeMax;
  (void)::poll(&ended, 1, static_cast<int>(kMost.count()));
}

bool IsUnreachable(const Status& why) {
  return why.code() == StatusCode::kUnavailable || why.code() == StatusCode::kDisconnected ||
         why.code() == StatusCode::kTimedOut;
}

}  // namespace gpushared::admin
