// SPDX-License-Identifier: Apache-2.0
#include "server/ctl/ask.h"

#include <chrono>

#include "ipc/unix_socket.h"

namespace gpushared::server {

Result<ipc::AdminReply> Ask(const std::string& path, const ipc::Admin& admin) {
  constexpr std::chrono::seconds kAnswerMax{10};
  const ipc::Deadline deadline = std::chrono::steady_clock::now() + kAnswerMax;
  const Result<ipc::UniqueFd> socket = ipc::ConnectUnix(path, deadline);
  if (!socket.ok()) return socket.status();
  // A server that refuses the connection itself answers without reading the question, so a
  // failed send is not the end of the story.
  const Status sent = ipc::SendMessage(socket->get(), 1, admin, deadline);
  ipc::AdminReply whole;
  do {
    const Result<ipc::Frame> frame =
        ipc::ReceiveFrame(socket->get(), ipc::ServerFrameRules, deadline);
    if (!frame.ok()) return sent.ok() ? frame.status() : sent;
    Result<ipc::AdminReply> page = ipc::DecodeReply<ipc::AdminReply>(*frame);
    if (!page.ok()) return page.status();
    whole.code = page->code;
    whole.is_last = page->is_last;
    whole.text += page->text;
  } while (!whole.is_last);
  return whole;
}

}  // namespace gpushared::server
