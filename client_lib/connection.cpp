// SPDX-License-Identifier: Apache-2.0
#include "client_lib/connection.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "client_lib/environment.h"
#include "ipc/socket_path.h"
#include "ipc/wire/bytes.h"

namespace gpushared::client {

namespace {

Status CheckOptions(const ClientOptions& options) {
  const auto reject = [](std::string message) {
    return Status(StatusCode::kInvalidArgument, "connect rejected: " + std::move(message));
  };
  if (options.name.size() >= ipc::kNameBytes || !ipc::IsPrintableText(options.name)) {
    return reject("the client's name has " + std::to_string(options.name.size()) +
                  " bytes, at most 63 bytes of UTF-8 without control characters are allowed");
  }
  if (options.device.size() >= ipc::kNameBytes || !ipc::IsPrintableText(options.device)) {
    return reject("the device's name has " + std::to_string(options.device.size()) +
                  " bytes, at most 63 bytes of UTF-8 without control characters are allowed");
  }
  if (options.weight && (*options.weight == 0 || *options.weight > kWeightMax)) {
    return reject("weight is " + std::to_string(*options.weight) + ", allowed: 1 to " +
                  std::to_string(kWeightMax));
  }
  // The comparison is negated so that it rejects NaN as well.
  if (options.max_share && !(*options.max_share >= 0.1 && *options.max_share <= 100)) {
    return reject("max_share is " + std::to_string(*options.max_share) +
                  " percent, allowed: 0.1 to 100");
  }
  if (options.memory_bytes == std::uint64_t{0}) {
    return reject("memory is 0 bytes, at least 1 is needed");
  }
  if (options.latency_target && options.latency_target->count() <= 0) {
    return reject("latency target is " + std::to_string(options.latency_target->count()) +
                  " ns, at least 1 ns is needed");
  }
  if (options.control_timeout.count() <= 0) {
    return reject("control timeout is " + std::to_string(options.control_timeout.count()) +
                  " ns, at least 1 ns is needed");
  }
  return Status::Ok();
}

ipc::Hello GetHello(const ClientOptions& options) {
  std::optional<std::uint32_t> max_share;
  if (options.max_share) {
    max_share = static_cast<std::uint32_t>(std::lround(*options.max_share * 10));
  }
  return {
      .client_class = options.scheduling_class,
      .weight = options.weight,
      .max_share = max_share,
      .latency_target_ns =
          options.latency_target ? static_cast<std::uint64_t>(options.latency_target->count()) : 0,
      .memory_bytes = options.memory_bytes.value_or(0),
      // glibc's short program name, which needs no file system and cannot fail.
      .name = options.name.empty()
                  ? std::string(ipc::CutText(program_invocation_short_name, ipc::kNameBytes - 1))
                  : options.name,
      .device = options.device,
      .takes_printed = options.takes_printed};
}

}  // namespace

Connection::Connection(ipc::UniqueFd socket, std::string path, std::chrono::nanoseconds timeout)
    : socket_(std::move(socket)), path_(std::move(path)), timeout_(timeout) {}

namespace {

// A longer timeout is treated as infinite, because adding it to the current time could overflow.
constexpr std::chrono::nanoseconds kInfinite = std::chrono::hours(24 * 365);

}  // namespace

ipc::Deadline Connection::NewDeadline() const {
  return std::chrono::steady_clock::now() + std::min(timeout_, kInfinite);
}

ipc::Deadline Connection::AnswerDeadline(std::uint16_t type) const {
  const bool is_load = type == static_cast<std::uint16_t>(ipc::MessageType::kLoadModule);
  return is_load ? std::chrono::steady_clock::now() + kInfinite : NewDeadline();
}

Result<std::vector<KnownDevice>> Connection::ListKnownDevices(const ClientOptions& options) {
  const Result<ipc::DeviceList> list = ListDevices(options);
  if (!list.ok()) return list.status();
  std::vector<KnownDevice> known;
  for (const ipc::DeviceDescription& device : list->devices) {
    known.push_back({.id = device.id, .kind = device.kind, .uuid = device.uuid});
  }
  return known;
}

Result<ClientOptions> Connection::WithEnvironment(const ClientOptions& options) {
  const Environment environment;
  ClientOptions whole = options;
  if (Status status = environment.Apply(whole); !status.ok()) return status;
  if (!environment.NamesDevices(whole)) return whole;
  const Result<std::vector<KnownDevice>> devices = ListKnownDevices(options);
  if (!devices.ok()) return devices.status();
  if (Status status = environment.ApplyDevices(*devices, whole); !status.ok()) return status;
  return whole;
}

Result<Connection::Opened> Connection::Open(const ClientOptions& asked, Kind kind) {
  Result<Opened> opened = TryOpen(asked, kind);
  // The connection was cut before the answer. If the server died, it may have been restarted, so a
  // second attempt is worthwhile.
  const bool was_cut = !opened.ok() && opened.status().code() == StatusCode::kDisconnected;
  return was_cut ? TryOpen(asked, kind) : std::move(opened);
}

Result<Connection::Opened> Connection::TryOpen(const ClientOptions& asked, Kind kind) {
  if (Status status = CheckOptions(asked); !status.ok()) return status;
  const Result<ClientOptions> whole = WithEnvironment(asked);
  if (!whole.ok()) return whole.status();
  const ClientOptions& options = *whole;
  // Checked again, because the environment may have filled in values.
  if (Status status = CheckOptions(options); !status.ok()) return status;
  Result<std::string> path = ipc::ClientSocketPath(options.socket);
  if (!path.ok()) return path.status();

  Opened opened;
  // Not make_unique, because the constructor is private.
  opened.connection.reset(new Connection(ipc::UniqueFd(), *path, options.control_timeout));
  const ipc::Deadline deadline = opened.connection->NewDeadline();
  Result<ipc::UniqueFd> socket = ipc::ConnectUnix(*path, deadline);
  if (!socket.ok()) return socket.status();
  opened.connection.reset(
      new Connection(std::move(*socket), std::move(*path), options.control_timeout));
  Connection& connection = *opened.connection;

  const int fd = connection.socket_.get();
  ipc::Hello hello = GetHello(options);
  hello.gated = kind == Kind::kGated;
  if (!ipc::IsPrintableText(hello.name)) hello.name = "unnamed";
  // A server that rejects the connection may close it before the hello is sent. Its message takes
  // precedence.
  const Status sent = ipc::SendMessage(fd, kFirstRequest, hello, deadline);
  Result<ipc::Frame> frame = ipc::ReceiveFrame(fd, ipc::ServerFrameRules, deadline);
  if (!frame.ok()) return sent.ok() ? frame.status() : sent;
  Result<ipc::Welcome> welcome = ipc::DecodeReply<ipc::Welcome>(*frame);
  if (!welcome.ok()) return welcome.status();
  connection.session_ = welcome->session;
  connection.ends_on_interrupt_ = *options.ends_on_interrupt;
  opened.welcome = std::move(*welcome);
  opened.fds = std::move(frame->fds);
  return opened;
}

Result<ipc::DeviceList> Connection::ListDevices(const ClientOptions& options) {
  if (Status status = CheckOptions(options); !status.ok()) return status;
  Result<std::string> path = ipc::ClientSocketPath(options.socket);
  if (!path.ok()) return path.status();
  const Connection shape(ipc::UniqueFd(), *path, options.control_timeout);
  const ipc::Deadline deadline = shape.NewDeadline();
  const Result<ipc::UniqueFd> socket = ipc::ConnectUnix(*path, deadline);
  if (!socket.ok()) return socket.status();
  // A server that rejects the connection may close it before the request is sent. Its message takes
  // precedence.
  const Status sent = ipc::SendMessage(socket->get(), kFirstRequest, ipc::ListDevices{}, deadline);
  Result<ipc::Frame> frame = ipc::ReceiveFrame(socket->get(), ipc::ServerFrameRules, deadline);
  if (!frame.ok()) return sent.ok() ? frame.status() : sent;
  return ipc::DecodeReply<ipc::DeviceList>(*frame);
}

Result<ipc::Frame> Connection::RoundTrip(std::uint16_t type, std::vector<std::byte> payload,
                                         std::span<const int> fds) {
  const MutexLock lock(round_trip_);
  if (ended()) return end_status();
  const std::uint32_t request = next_request_++;
  const Status sent = ipc::SendFrame(socket_.get(), type, request, payload, fds, NewDeadline());
  // After a failed send, the last message of the server can still be read.
  Result<ipc::Frame> frame = ReceiveUnlessPosted(AnswerDeadline(type));
  if (!frame.ok()) return EndAfter(sent.ok() ? frame.status() : sent);
  if (frame->type == static_cast<std::uint16_t>(ipc::MessageType::kEnded)) {
    End(ipc::UnexpectedReply(*frame, ipc::MessageType::kDone));
    return end_status();
  }
  if (frame->request == request) return frame;
  return EndAfter(Status(StatusCode::kProtocolViolation,
                         "session ended: the server answered request " +
                             std::to_string(frame->request) + " while request " +
                             std::to_string(request) + " was open"));
}

bool Connection::TryPostFrame(std::uint16_t type, std::vector<std::byte> payload) {
  if (!round_trip_.TryLock()) return false;
  const MutexLock lock(round_trip_, std::adopt_lock);
  // The session has ended, so the request is obsolete.
  if (ended() || !ReadArrived()) return true;
  if (posted_.size() >= kPostedMax) return false;
  const std::uint32_t request = next_request_++;
  const Status sent = ipc::SendFrame(socket_.get(), type, request, payload, {}, NewDeadline());
  // After a failed send, the next caller that waits detects the broken socket.
  if (sent.ok()) posted_.insert(request);
  return true;
}

Status Connection::AwaitPosted() {
  const MutexLock lock(round_trip_);
  const ipc::Deadline deadline = NewDeadline();
  while (posted_.size() >= kPostedMax) {
    if (Status status = ReadPosted(deadline); !status.ok()) return status;
  }
  return ended() ? end_status() : Status::Ok();
}

Status Connection::ReadPosted(ipc::Deadline deadline) {
  Result<ipc::Frame> frame = ipc::ReceiveFrame(socket_.get(), ipc::ServerFrameRules, deadline);
  if (!frame.ok()) return EndAfter(frame.status());
  if (frame->type == static_cast<std::uint16_t>(ipc::MessageType::kEnded)) {
    End(ipc::UnexpectedReply(*frame, ipc::MessageType::kDone));
    return end_status();
  }
  if (posted_.erase(frame->request) > 0) return Status::Ok();
  return EndAfter(Status(StatusCode::kProtocolViolation,
                         "session ended: the server sent an unexpected message"));
}

bool Connection::ReadArrived() {
  for (;;) {
    pollfd readable = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, 0) <= 0) return !ended();
    if (!ReadPosted(NewDeadline()).ok()) return false;
  }
}

Result<ipc::Frame> Connection::ReceiveUnlessPosted(ipc::Deadline deadline) {
  for (;;) {
    Result<ipc::Frame> frame = ipc::ReceiveFrame(socket_.get(), ipc::ServerFrameRules, deadline);
    if (!frame.ok()) return frame;
    if (posted_.erase(frame->request) == 0) return frame;
  }
}

bool Connection::CheckAlive() {
  if (ended()) return false;
  // Another thread in a round trip detects the end of the session itself, so this thread need not
  // read.
  if (!round_trip_.TryLock()) return !ended();
  const MutexLock lock(round_trip_, std::adopt_lock);
  return ReadArrived();
}

Status Connection::end_status() const {
  const MutexLock lock(end_mutex_);
  return end_status_;
}

void Connection::End(Status reason) {
  {
    const MutexLock lock(end_mutex_);
    if (!end_status_.ok()) return;
    end_status_ = std::move(reason);
  }
  // Release: pairs with ended().
  ended_.store(true, std::memory_order_release);
  // The socket is shut down here and closed in the destructor, because its descriptor must not be
  // reused while another thread may be in a call on it.
  ::shutdown(socket_.get(), SHUT_RDWR);
}

Status Connection::EndAfter(const Status& failure) {
  if (!ended()) {
    if (failure.code() == StatusCode::kDisconnected) {
      End(AskWhy());
    } else if (failure.code() == StatusCode::kTimedOut) {
      End(Status(StatusCode::kDisconnected, "session ended: the server did not answer within " +
                                                std::to_string(timeout_.count() / 1'000'000) +
                                                " ms"));
    } else {
      End(failure);
    }
  }
  return end_status();
}

Status Connection::AskWhy() const {
  const Result<ipc::Ended> answer = AskBroker();
  if (answer.ok()) return answer->status;
  // A live broker accepts connections. If no process accepts this connection, the broker has ended
  // together with the worker.
  const bool is_gone = answer.status().code() == StatusCode::kUnavailable;
  return {StatusCode::kDisconnected,
          "session " + std::to_string(session_) + " ended: " +
              (is_gone ? "the server has ended together with its worker: "
                       : "the server closed the connection and gives no reason: ") +
              std::string(answer.status().message())};
}

Result<ipc::Ended> Connection::AskBroker() const {
  // The client can observe the end of a worker before the broker does; the broker answers once it
  // has detected the end.
  const ipc::Deadline deadline = std::chrono::steady_clock::now() + kWhyTimeout;
  const Result<ipc::UniqueFd> socket = ipc::ConnectUnix(path_, deadline);
  if (!socket.ok()) return socket.status();
  const Status sent = ipc::SendMessage(socket->get(), 1, ipc::Why{.session = session_}, deadline);
  // A broker that rejects the connection may close it before it has read the question.
  const Result<ipc::Frame> frame =
      ipc::ReceiveFrame(socket->get(), ipc::ServerFrameRules, deadline);
  if (!frame.ok()) return sent.ok() ? frame.status() : sent;
  if (frame->type == static_cast<std::uint16_t>(ipc::MessageType::kEnded)) {
    return ipc::Decode<ipc::Ended>(frame->payload);
  }
  return ipc::UnexpectedReply(*frame, ipc::MessageType::kEnded);
}

}  // namespace gpushared::client
