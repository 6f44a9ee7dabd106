// SPDX-License-Identifier: Apache-2.0
#include "ipc/unix_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <system_error>
#include <utility>

#include "gpushared/check.h"

#include "ipc/socket_path.h"

namespace gpushared::ipc {
namespace {

// Linux 6.5; the C library may be older than the kernel.
#ifndef SO_PEERPIDFD
constexpr int kPeerPidfdOption = 77;
#else
constexpr int kPeerPidfdOption = SO_PEERPIDFD;
#endif

// Room for one descriptor more than any frame may carry, so that an excess is detected. The kernel
// drops descriptors that do not fit, without installing them, and sets MSG_CTRUNC.
constexpr std::size_t kControlFdsMax = kFrameFdsMax + 1;

std::string GetErrorText(int error) { return std::generic_category().message(error); }

Status Violates(const std::string& sentence) {
  return Status(StatusCode::kProtocolViolation, sentence);
}

Status PeerGone(int error) {
  if (error == EPIPE || error == ECONNRESET || error == ENOTCONN || error == EBADF) {
    return Status(StatusCode::kDisconnected, "the other end has closed the connection");
  }
  return Status(StatusCode::kInternal, "socket failed: " + GetErrorText(error));
}

struct Received {
  ssize_t bytes = 0;  // Number of bytes received; 0 at EOF; -1 with `error` set.
  int error = 0;
  bool fds_cut = false;
  std::vector<UniqueFd> fds;
};

// Performs one recvmsg that never blocks. Takes ownership of every descriptor that arrives.
Received ReceiveBytes(int socket, std::span<std::byte> into) {
  Received result;
  iovec part{into.data(), into.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kControlFdsMax)> control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  do {
    result.bytes = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (result.bytes == -1 && errno == EINTR);
  if (result.bytes < 0) {
    result.error = errno;
    return result;
  }
  for (cmsghdr* item = CMSG_FIRSTHDR(&message); item != nullptr;
       item = CMSG_NXTHDR(&message, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(item) + i * sizeof fd, sizeof fd);
      result.fds.emplace_back(fd);
    }
  }
  result.fds_cut = (message.msg_flags & MSG_CTRUNC) != 0;
  return result;
}

// Performs one receive that never blocks and takes no descriptors: data that carries a descriptor
// is left in the socket. Peeks first, because a receive without space for descriptors drops them,
// and dropping them takes as long as releasing their files.
Received ReceiveOnlyBytes(int socket, std::span<std::byte> into) {
  Received result;
  iovec part{into.data(), into.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  do {
    result.bytes = ::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
  } while (result.bytes == -1 && errno == EINTR);
  result.error = errno;
  result.fds_cut = result.bytes > 0 && (message.msg_flags & MSG_CTRUNC) != 0;
  if (result.bytes <= 0 || result.fds_cut) return result;
  // Receives exactly the bytes that were peeked at, because there is no other reader.
  const std::size_t there = static_cast<std::size_t>(result.bytes);
  do {
    result.bytes = ::recv(socket, into.data(), there, MSG_DONTWAIT);
  } while (result.bytes == -1 && errno == EINTR);
  result.error = errno;
  return result;
}

// Performs one sendmsg that never blocks; descriptors are sent with the first byte. Returns -1 with
// errno set on failure.
ssize_t SendBytes(int socket, std::span<const iovec> parts, std::span<const int> fds) {
  Check(fds.size() <= kFrameFdsMax, "a frame carries at most kFrameFdsMax descriptors");
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kFrameFdsMax)> control{};
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* item = CMSG_FIRSTHDR(&message);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(item), fds.data(), fds.size_bytes());
  }
  ssize_t sent;
  do {
    sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent == -1 && errno == EINTR);
  return sent;
}

Status WaitFor(int socket, short events, Deadline deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd entry{socket, events, 0};
    const auto timeout = std::clamp<std::int64_t>(left.count(), 0, INT_MAX);
    const int ready = ::poll(&entry, 1, static_cast<int>(timeout));
    // Errors and hang-ups are treated as ready, because the next call reports them.
    if (ready > 0) return Status::Ok();
    if (ready == 0) {
      return Status(StatusCode::kTimedOut, "the other end did not answer in time");
    }
    if (errno != EINTR) return Status(StatusCode::kInternal, "poll failed: " + GetErrorText(errno));
  }
}

std::vector<std::byte> FrameBytes(std::uint32_t magic, std::uint16_t type, std::uint32_t request,
                                  std::span<const std::byte> payload) {
  FrameHeader header;
  header.magic = magic;
  header.type = type;
  header.request = request;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  std::vector<std::byte> bytes(sizeof header + payload.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!payload.empty()) std::memcpy(bytes.data() + sizeof header, payload.data(), payload.size());
  return bytes;
}

// Returns kProtocolViolation for an invalid header. Sets `rule` to the rule of a valid one.
Status CheckFrameHeader(const FrameHeader& header, std::uint32_t magic, FrameRules rules,
                        FrameRule& rule) {
  if (header.magic != magic)
    return Violates("frame rejected: it does not begin with the magic number");
  if (header.reserved != 0) return Violates("frame rejected: its reserved field is not zero");
  const std::optional<FrameRule> found = rules(header.type);
  const std::string name = "frame of type " + std::to_string(header.type);
  if (!found) return Violates(name + " rejected: not allowed here");
  if (header.payload_bytes < found->payload_bytes_min ||
      header.payload_bytes > found->payload_bytes_max) {
    return Violates(name + " rejected: it has " + std::to_string(header.payload_bytes) +
                    " bytes of payload, allowed: " + std::to_string(found->payload_bytes_min) +
                    " to " + std::to_string(found->payload_bytes_max));
  }
  rule = *found;
  return Status::Ok();
}

Status CheckFdCount(std::uint16_t type, std::size_t fds, const FrameRule& rule) {
  if (fds == rule.fds) return Status::Ok();
  return Violates("frame of type " + std::to_string(type) + " rejected: it carries " +
                  std::to_string(fds) + " descriptors, required " + std::to_string(rule.fds));
}

}  // namespace

Result<PeerIdentity> GetPeer(int socket) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    return Status(StatusCode::kInternal, "SO_PEERCRED failed: " + GetErrorText(errno));
  }
  return PeerIdentity{credentials.pid, credentials.uid, credentials.gid};
}

Result<UniqueFd> OpenPeerPidfd(int socket) {
  int fd = -1;
  socklen_t bytes = sizeof fd;
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfdOption, &fd, &bytes) == 0 && fd >= 0) {
    return UniqueFd(fd);  // The descriptor was created close-on-exec.
  }
  Result<PeerIdentity> peer = GetPeer(socket);
  if (!peer.ok()) return peer.status();
  // 0 means that the peer is in a process namespace that is not visible from here.
  if (peer->pid <= 0) {
    return Status(StatusCode::kUnsupported,
                  "no pidfd: the client's process is not visible from the server's namespace and "
                  "this kernel has no SO_PEERPIDFD (Linux 6.5)");
  }
  fd = static_cast<int>(::syscall(SYS_pidfd_open, peer->pid, 0));
  if (fd < 0) {
    const StatusCode code = errno == ESRCH ? StatusCode::kDisconnected : StatusCode::kInternal;
    return Status(code, "pidfd_open of process " + std::to_string(peer->pid) +
                            " failed: " + GetErrorText(errno));
  }
  return UniqueFd(fd);
}

Result<UniqueFd> ConnectUnix(const std::string& path, Deadline deadline) {
  const Result<sockaddr_un> address = SocketAddress(path);
  if (!address.ok()) return address.status();
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) {
    return Status(StatusCode::kInternal, "no socket: " + GetErrorText(errno));
  }
  for (;;) {
    // If the server's accept queue is full, connect blocks, and poll cannot wait for space in the
    // queue. The send timeout of the socket therefore limits the wait. A timeout of 0 would mean no
    // limit.
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(
        deadline - std::chrono::steady_clock::now());
    const std::int64_t us = std::max<std::int64_t>(left.count(), 1000);
    const timeval limit{us / 1'000'000, us % 1'000'000};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) ==
        0) {
      break;
    }
    if (errno == EINTR && std::chrono::steady_clock::now() < deadline) continue;
    if (errno == EAGAIN || errno == EINTR) {
      return Status(StatusCode::kTimedOut, "the server at '" + path + "' did not accept in time");
    }
    const bool denied = errno == EACCES || errno == EPERM;
    return Status(denied ? StatusCode::kPermissionDenied : StatusCode::kUnavailable,
                  "no server answers at '" + path + "': " + GetErrorText(errno));
  }
  if (Status status = SetNonBlocking(socket.get(), true); !status.ok()) return status;
  return socket;
}

Status SendFrame(int socket, std::uint16_t type, std::uint32_t request,
                 std::span<const std::byte> payload, std::span<const int> fds, Deadline deadline) {
  const std::vector<std::byte> bytes = FrameBytes(kFrameMagic, type, request, payload);
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const iovec part{const_cast<std::byte*>(bytes.data()) + sent, bytes.size() - sent};
    const ssize_t now = SendBytes(socket, {&part, 1}, sent == 0 ? fds : std::span<const int>());
    if (now >= 0) {
      sent += static_cast<std::size_t>(now);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (Status status = WaitFor(socket, POLLOUT, deadline); !status.ok()) return status;
    } else {
      return PeerGone(errno);
    }
  }
  return Status::Ok();
}

Result<Frame> ReceiveFrame(int socket, FrameRules rules, Deadline deadline) {
  FrameReader reader(rules);
  Frame frame;
  for (;;) {
    Result<FrameReader::Progress> progress = reader.Read(socket, frame);
    if (!progress.ok()) return progress.status();
    switch (*progress) {
      case FrameReader::Progress::kFrame:
        return frame;
      case FrameReader::Progress::kClosed:
        return Status(StatusCode::kDisconnected, "the other end has closed the connection");
      case FrameReader::Progress::kWouldBlock:
        break;
    }
    if (Status status = WaitFor(socket, POLLIN, deadline); !status.ok()) return status;
  }
}

Status FrameReader::TakeFds(std::vector<UniqueFd> fds) {
  const std::size_t allowed = header_done_ ? rule_.fds : kFrameFdsMax;
  if (frame_.fds.size() + fds.size() > allowed) {
    return Violates("frame rejected: it carries more than " + std::to_string(allowed) +
                    " descriptors");
  }
  for (UniqueFd& fd : fds) frame_.fds.push_back(std::move(fd));
  return Status::Ok();
}

Status FrameReader::CheckHeader() {
  if (Status status = CheckFrameHeader(header_, kFrameMagic, rules_, rule_); !status.ok())
    return status;
  frame_.type = header_.type;
  frame_.request = header_.request;
  frame_.payload.resize(header_.payload_bytes);
  header_done_ = true;
  have_ = 0;
  return Status::Ok();
}

Result<FrameReader::Progress> FrameReader::Read(int socket, Frame& frame) {
  for (;;) {
    if (header_done_ && have_ == frame_.payload.size()) {
      header_done_ = false;
      have_ = 0;
      if (Status status = CheckFdCount(frame_.type, frame_.fds.size(), rule_); !status.ok()) {
        frame_ = Frame();
        return status;
      }
      frame = std::exchange(frame_, Frame());
      return Progress::kFrame;
    }
    const std::span<std::byte> whole =
        header_done_ ? std::span(frame_.payload)
                     : std::as_writable_bytes(std::span<FrameHeader, 1>(&header_, 1));
    const bool takes = descriptors_ == Descriptors::kTaken;
    const std::span<std::byte> rest = whole.subspan(have_);
    Received received = takes ? ReceiveBytes(socket, rest) : ReceiveOnlyBytes(socket, rest);
    if (received.bytes < 0) {
      if (received.error == EAGAIN || received.error == EWOULDBLOCK) return Progress::kWouldBlock;
      return PeerGone(received.error);
    }
    if (received.fds_cut && !takes) {
      return Violates("frame rejected: it carries descriptors, which clients must not send");
    }
    if (received.fds_cut) return Violates("frame rejected: it carries too many descriptors");
    if (received.bytes == 0) {
      if (!header_done_ && have_ == 0) return Progress::kClosed;
      return Status(StatusCode::kDisconnected,
                    "the other end closed the connection inside a frame");
    }
    if (Status status = TakeFds(std::move(received.fds)); !status.ok()) return status;
    have_ += static_cast<std::size_t>(received.bytes);
    if (!header_done_ && have_ == sizeof header_) {
      if (Status status = CheckHeader(); !status.ok()) return status;
    }
  }
}

bool DropBytes(int socket) {
  std::array<std::byte, 4096> bytes;
  for (;;) {
    const Received received = ReceiveOnlyBytes(socket, bytes);
    if (received.fds_cut) return false;
    if (received.bytes <= 0) return true;
  }
}

Status Outbox::Add(std::uint16_t type, std::uint32_t request, std::span<const std::byte> payload,
                   std::vector<UniqueFd> fds) {
  const std::uint32_t magic = kind_ == Kind::kStream ? kFrameMagic : kChannelMagic;
  if (bytes_ + payload.size() + sizeof(FrameHeader) > kBytesMax) {
    return Status(StatusCode::kLimitExceeded,
                  "the peer does not read: " + std::to_string(bytes_) +
                      " bytes wait for it, allowed: " + std::to_string(kBytesMax));
  }
  frames_.push_back({FrameBytes(magic, type, request, payload), 0, std::move(fds)});
  bytes_ += frames_.back().bytes.size();
  return Status::Ok();
}

Result<bool> Outbox::Flush(int socket) {
  while (!frames_.empty()) {
    Pending& next = frames_.front();
    std::vector<int> fds;
    if (next.sent == 0) {
      for (const UniqueFd& fd : next.fds) fds.push_back(fd.get());
    }
    const iovec part{next.bytes.data() + next.sent, next.bytes.size() - next.sent};
    const ssize_t sent = SendBytes(socket, {&part, 1}, fds);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return false;
      return PeerGone(errno);
    }
    next.sent += static_cast<std::size_t>(sent);
    next.fds.clear();  // The descriptors were sent with the first byte.
    if (next.sent == next.bytes.size()) {
      bytes_ -= next.bytes.size();
      frames_.pop_front();
    }
  }
  return true;
}

Result<std::pair<UniqueFd, UniqueFd>> MakeChannelPair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
    return Status(StatusCode::kInternal, "no socket pair: " + GetErrorText(errno));
  }
  std::pair<UniqueFd, UniqueFd> pair{UniqueFd(ends[0]), UniqueFd(ends[1])};
  for (const int end : ends) SizeChannelBuffer(end);
  return pair;
}

void SizeChannelBuffer(int channel) {
  // The kernel grants at most net.core.wmem_max, whose default suffices for one message.
  const int bytes = 4 * static_cast<int>(kChannelMessageBytesMax);
  (void)::setsockopt(channel, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

Result<std::optional<Frame>> ReceiveChannelMessage(int channel, FrameRules rules) {
  ssize_t size;
  do {
    size = ::recv(channel, nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
    // If the peer closed its end before it read all of our messages, the kernel first reports
    // ECONNRESET, once. The messages from the peer are still available afterwards.
  } while (size == -1 && (errno == EINTR || errno == ECONNRESET));
  if (size < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<Frame>();
    return PeerGone(errno);
  }
  if (size == 0) return Status(StatusCode::kDisconnected, "the channel's other end has closed");
  const auto message_bytes = static_cast<std::size_t>(size);
  const bool fits = message_bytes >= sizeof(FrameHeader) &&
                    message_bytes <= sizeof(FrameHeader) + kChannelMessageBytesMax;
  // A message of an invalid size is received as well, and then rejected, because it would otherwise
  // stay at the head of the queue forever. The kernel drops the part that exceeds the buffer.
  std::vector<std::byte> bytes(fits ? message_bytes : sizeof(FrameHeader));
  Received received = ReceiveBytes(channel, bytes);
  if (received.bytes < 0) return PeerGone(received.error);
  if (!fits) {
    return Violates("channel message rejected: it has " + std::to_string(message_bytes) + " bytes");
  }
  if (received.fds_cut)
    return Violates("channel message rejected: it carries too many descriptors");
  FrameHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  FrameRule rule;
  if (Status status = CheckFrameHeader(header, kChannelMagic, rules, rule); !status.ok()) {
    return status;
  }
  if (header.payload_bytes != bytes.size() - sizeof header) {
    return Violates("channel message rejected: its length is not that of its payload");
  }
  if (Status status = CheckFdCount(header.type, received.fds.size(), rule); !status.ok()) {
    return status;
  }
  bytes.erase(bytes.begin(), bytes.begin() + sizeof header);
  return std::optional<Frame>(
      Frame{header.type, header.request, std::move(bytes), std::move(received.fds)});
}

Result<UniqueFd> DuplicateFd(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) {
    return Status(StatusCode::kInternal, "duplicating a descriptor failed: " + GetErrorText(errno));
  }
  return copy;
}

Status SetNonBlocking(int fd, bool non_blocking) {
  const int flags = ::fcntl(fd, F_GETFL);
  const int wanted = non_blocking ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
  if (flags < 0 || (wanted != flags && ::fcntl(fd, F_SETFL, wanted) != 0)) {
    return Status(StatusCode::kInternal, "setting O_NONBLOCK failed: " + GetErrorText(errno));
  }
  return Status::Ok();
}

}  // namespace gpushared::ipc
