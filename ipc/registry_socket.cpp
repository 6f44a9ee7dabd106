// SPDX-License-Identifier: Apache-2.0
#include "ipc/registry_socket.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "ipc/socket_path.h"

namespace gpushared::ipc {
namespace {

// Small, because only one live broker connects at a time. Connections of dead brokers may be queued
// before that of the live one.
constexpr int kBacklog = 4;

std::string PathIn(const std::string& directory, pid_t pid) {
  return directory + "/" + std::to_string(pid);
}

Status RegistryFailed(const std::string& what, const std::string& path) {
  return {StatusCode::kInternal,
          what + " '" + path + "' failed: " + std::generic_category().message(errno)};
}

Result<UniqueFd> MakeSocket() {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) {
    return Status(StatusCode::kInternal,
                  "no socket for registries: " + std::generic_category().message(errno));
  }
  return socket;
}

}  // namespace

Result<RegistrySocket> RegistrySocket::Open(const std::string& directory) {
  const std::string path = PathIn(directory, ::getpid());
  const Result<sockaddr_un> address = SocketAddress(path);
  if (!address.ok()) return address.status();
  Result<UniqueFd> socket = MakeSocket();
  if (!socket.ok()) return socket.status();
  // The file may be left over from an earlier process with the same id. That process has ended,
  // because ids of live processes are unique.
  (void)::unlink(path.c_str());
  if (::bind(socket->get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    return RegistryFailed("binding socket", path);
  }
  RegistrySocket opened;
  opened.path_ = path;  // From here on the destructor removes the file.
  if (::listen(socket->get(), kBacklog) != 0) return RegistryFailed("listening on", path);
  opened.socket_ = std::move(*socket);
  return opened;
}

RegistrySocket::RegistrySocket(RegistrySocket&& other) noexcept
    : path_(std::exchange(other.path_, {})), socket_(std::move(other.socket_)) {}

RegistrySocket::~RegistrySocket() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

Result<std::optional<UniqueFd>> RegistrySocket::Accept() {
  UniqueFd channel(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!channel.valid()) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ECONNABORTED) {
      return std::optional<UniqueFd>();
    }
    return RegistryFailed("accepting on", path_);
  }
  const Result<PeerIdentity> peer = GetPeer(channel.get());
  if (!peer.ok()) return peer.status();
  if (peer->uid != ::geteuid()) {
    return Status(StatusCode::kPermissionDenied, "a broker of uid " + std::to_string(peer->uid) +
                                                     " (pid " + std::to_string(peer->pid) +
                                                     ") is rejected: this worker is of uid " +
                                                     std::to_string(::geteuid()));
  }
  SizeChannelBuffer(channel.get());
  return std::optional<UniqueFd>(std::move(channel));
}

Result<FoundWorker> FindWorker(const std::string& directory, pid_t pid) {
  const std::string path = PathIn(directory, pid);
  const Result<sockaddr_un> address = SocketAddress(path);
  if (!address.ok()) return address.status();
  Result<UniqueFd> socket = MakeSocket();
  if (!socket.ok()) return socket.status();
  if (::connect(socket->get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) !=
      0) {
    if (errno == ECONNREFUSED || errno == ENOENT) {
      return Status(StatusCode::kNotFound, "no worker listens at '" + path + "'");
    }
    return RegistryFailed("connecting to", path);
  }
  const Result<PeerIdentity> peer = GetPeer(socket->get());
  if (!peer.ok()) return peer.status();
  if (peer->uid != ::geteuid() || peer->pid != pid) {
    return Status(StatusCode::kPermissionDenied,
                  "the listener at '" + path + "' is uid " + std::to_string(peer->uid) + " pid " +
                      std::to_string(peer->pid) + ", expected uid " + std::to_string(::geteuid()) +
                      " pid " + std::to_string(pid));
  }
  Result<UniqueFd> pidfd = OpenPeerPidfd(socket->get());
  if (!pidfd.ok()) return pidfd.status();
  SizeChannelBuffer(socket->get());
  return FoundWorker{.channel = std::move(*socket), .pidfd = std::move(*pidfd), .pid = pid};
}

}  // namespace gpushared::ipc
