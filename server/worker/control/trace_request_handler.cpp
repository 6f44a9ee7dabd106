// SPDX-License-Identifier: Apache-2.0
#include "server/worker/control/trace_request_handler.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "ipc/unix_socket.h"
#include "ipc/wire/control.h"
#include "server/telemetry/trace/layout.h"

namespace gpushared::server {

namespace {

// Sends a reply that is short enough for the empty send buffer of a new connection.
template <typename T>
bool SendAtOnce(int connection, std::uint32_t request, const T& message,
                std::vector<ipc::UniqueFd> fds = {}) {
  ipc::Outbox outbox;
  if (!outbox.Add(request, message, std::move(fds)).ok()) return false;
  const Result<bool> sent = outbox.Flush(connection);
  return sent.ok() && *sent;
}

}  // namespace

TraceRequestHandler::~TraceRequestHandler() {
  for (auto& [number, watcher] : watchers_) Close(watcher);
}

void TraceRequestHandler::Add(const ipc::Watch& watch, ipc::UniqueFd connection) {
  const std::size_t places = watch.is_operator ? kWatchersMax : kWatchersMax / 2;
  const std::uint64_t number = ++last_number_;
  const auto [at, added] = watchers_.emplace(
      number, Watcher{Descriptor(around_.context, connection.Release()), watch.request});
  if (watchers_.size() > places) {
    const Status why(
        StatusCode::kLimitExceeded,
        fmt::format("trace rejected: {} others watch this device, allowed: {}{} "
                    "[uid {} pid {}]",
                    watchers_.size() - 1, places,
                    watch.is_operator ? "" : " in addition to operators", watch.uid, watch.pid));
    (void)SendAtOnce(at->second.connection.native_handle(), watch.request, ipc::Rejected{why});
    return Remove(number);
  }
  if (memory_.valid()) return Answer(number);
  if (!std::exchange(is_making_, true)) Make();
}

void TraceRequestHandler::Make() {
  // The slow call is urgent, because it makes no driver call and therefore cannot delay a request.
  around_.slow_calls.Post({.is_urgent = true}, [this, home = around_.home] {
    auto made = std::make_shared<Result<std::unique_ptr<trace::Writer>>>(trace::Writer::Create());
    home.Post([this, made] { OnMade(std::move(*made)); });
  });
}

void TraceRequestHandler::OnMade(Result<std::unique_ptr<trace::Writer>> writer) {
  is_making_ = false;
  if (!writer.ok()) return RejectAll(writer.status());
  if (watchers_.empty()) return Free(*std::move(writer));
  Result<ipc::UniqueFd> memory = (*writer)->ShareMemory();
  if (!memory.ok()) return RejectAll(memory.status());
  memory_ = *std::move(memory);
  around_.device_thread.Post(SetTrace{*std::move(writer)});
  std::vector<std::uint64_t> waiting;
  for (const auto& [number, watcher] : watchers_) waiting.push_back(number);
  for (const std::uint64_t number : waiting) Answer(number);
}

void TraceRequestHandler::Answer(std::uint64_t number) {
  Watcher& watcher = watchers_.at(number);
  Result<ipc::UniqueFd> memory = ipc::DuplicateFd(memory_.get());
  std::vector<ipc::UniqueFd> fds;
  if (memory.ok()) fds.push_back(*std::move(memory));
  const ipc::TraceOpened opened = {.layout = trace::kLayoutNumber,
                                   .generation = around_.generation};
  if (fds.empty() ||
      !SendAtOnce(watcher.connection.native_handle(), watcher.request, opened, std::move(fds))) {
    return Remove(number);
  }
  AwaitEnd(number);
}

// Watchers send nothing after their request: any further byte ends the connection, too.
void TraceRequestHandler::AwaitEnd(std::uint64_t number) {
  watchers_.at(number).connection.async_wait(
      Descriptor::wait_read, [this, number](const boost::system::error_code& error) {
        if (error) return;
        const auto found = watchers_.find(number);
        if (found == watchers_.end()) return;
        char byte = 0;
        const int fd = found->second.connection.native_handle();
        const bool is_empty =
            ::recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR);
        // Asio may wake a new descriptor with the events of one that was closed.
        if (is_empty) return AwaitEnd(number);
        Remove(number);
      });
}

void TraceRequestHandler::Remove(std::uint64_t number) {
  const auto found = watchers_.find(number);
  if (found == watchers_.end()) return;
  Close(found->second);
  watchers_.erase(found);
  if (!watchers_.empty() || !memory_.valid()) return;
  memory_.Reset();
  around_.device_thread.Post(SetTrace{nullptr});
}

void TraceRequestHandler::Close(Watcher& watcher) const {
  around_.endings.CloseSocket(ipc::UniqueFd(watcher.connection.release()));
}

void TraceRequestHandler::RejectAll(const Status& why) {
  for (auto& [number, watcher] : watchers_) {
    (void)SendAtOnce(watcher.connection.native_handle(), watcher.request, ipc::Rejected{why});
    Close(watcher);
  }
  watchers_.clear();
}

void TraceRequestHandler::Free(std::unique_ptr<trace::Writer> writer) const {
  around_.slow_calls.Post({.is_urgent = true},
                          [writer = std::move(writer)]() mutable { writer.reset(); });
}

}  // namespace gpushared::server
