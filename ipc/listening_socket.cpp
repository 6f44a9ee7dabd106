// SPDX-License-Identifier: Apache-2.0
#include "ipc/listening_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <system_error>
#include <utility>

#include "ipc/socket_path.h"
#include "ipc/unix_socket.h"

namespace gpushared::ipc {
namespace {

// Since Linux 6.16; the C library may be older than the kernel.
#ifndef SO_PASSRIGHTS
constexpr int kPassRightsOption = 83;
#else
constexpr int kPassRightsOption = SO_PASSRIGHTS;
#endif

Status Failed(const std::string& what, const std::string& path) {
  const int error = errno;
  const bool denied = error == EACCES || error == EPERM || error == EROFS;
  return Status(denied ? StatusCode::kPermissionDenied : StatusCode::kInternal,
                what + " '" + path + "' failed: " + std::generic_category().message(error));
}

Status Bind(int socket, const std::string& path, mode_t mode) {
  const Result<sockaddr_un> address = SocketAddress(path);
  if (!address.ok()) return address.status();
  // The file must never exist with wider permissions, not even between bind and chmod. Changing the
  // process-wide umask is safe, because the broker has a single thread when it opens its socket.
  const mode_t before = ::umask(static_cast<mode_t>(~mode & 0777));
  const int bound = ::bind(socket, reinterpret_cast<const sockaddr*>(&*address), sizeof *address);
  const int error = errno;
  ::umask(before);
  errno = error;
  return bound == 0 ? Status::Ok() : Failed("binding socket", path);
}

// Since Linux 6.16 the kernel can reject descriptors: sending one fails with EPERM. Accepted
// sockets inherit the option. On older kernels the readers reject them (Descriptors::kRejected).
void KeepDescriptorsOut(int socket) {
  const int no = 0;
  (void)::setsockopt(socket, SOL_SOCKET, kPassRightsOption, &no, sizeof no);
}

}  // namespace

Result<InheritedSocket> InheritedSocket::Examine(UniqueFd fd) {
  sockaddr_un address{};
  socklen_t bytes = sizeof address;
  int type = 0, listens = 0;
  socklen_t type_bytes = sizeof type, listens_bytes = sizeof listens;
  const bool is_ours =
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0 &&
      address.sun_family == AF_UNIX && bytes > offsetof(sockaddr_un, sun_path) &&
      address.sun_path[0] == '/' &&
      ::getsockopt(fd.get(), SOL_SOCKET, SO_TYPE, &type, &type_bytes) == 0 && type == SOCK_STREAM &&
      ::getsockopt(fd.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_bytes) == 0 &&
      listens == 1;
  if (!is_ours) {
    return Status(StatusCode::kInvalidArgument,
                  "it is no Unix stream socket that listens at a path");
  }
  InheritedSocket socket;
  socket.path = std::string(address.sun_path, ::strnlen(address.sun_path, sizeof address.sun_path));
  if (Status status = SetNonBlocking(fd.get(), true); !status.ok()) return status;
  socket.fd = std::move(fd);
  return socket;
}

Result<ListeningSocket> ListeningSocket::Open(const Options& options,
                                              std::optional<InheritedSocket> inherited) {
  ListeningSocket opened;
  const std::string lock_path = options.path + ".lock";
  UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return Failed("opening lock file", lock_path);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Failed("locking", lock_path);
    return Status(StatusCode::kUnavailable, "another server already serves '" + options.path + "'");
  }
  opened.lock_ = std::move(lock);
  if (inherited) {
    opened.removes_file_ = inherited->is_own;
    opened.path_ = options.path;
    opened.socket_ = std::move(inherited->fd);
    KeepDescriptorsOut(opened.socket_.get());
    return opened;
  }

  struct stat facts {};
  if (::lstat(options.path.c_str(), &facts) == 0) {
    // This process holds the lock that belonged to the socket's owner, so the owner has died. A
    // file that is not a socket was not created by a server and is not removed.
    if (!S_ISSOCK(facts.st_mode)) {
      return Status(StatusCode::kInvalidArgument,
                    "'" + options.path + "' exists and is not a socket; it is left alone");
    }
    if (::unlink(options.path.c_str()) != 0) return Failed("removing stale socket", options.path);
    opened.replaced_stale_ = true;
  }

  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return Failed("making socket", options.path);
  if (Status status = Bind(socket.get(), options.path, options.mode); !status.ok()) return status;
  opened.path_ = options.path;  // From here on the destructor removes the file.
  KeepDescriptorsOut(socket.get());
  if (::listen(socket.get(), options.backlog) != 0) return Failed("listening on", options.path);
  opened.socket_ = std::move(socket);
  return opened;
}

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      lock_(std::move(other.lock_)),
      socket_(std::move(other.socket_)),
      removes_file_(other.removes_file_),
      replaced_stale_(other.replaced_stale_) {}

ListeningSocket& ListeningSocket::operator=(ListeningSocket&& other) noexcept {
  if (this != &other) {
    Close();
    path_ = std::exchange(other.path_, {});
    lock_ = std::move(other.lock_);
    socket_ = std::move(other.socket_);
    removes_file_ = other.removes_file_;
    replaced_stale_ = other.replaced_stale_;
  }
  return *this;
}

ListeningSocket::~ListeningSocket() { Close(); }

void ListeningSocket::Close() {
  // The file is removed while the lock is held. Otherwise Close could remove the socket of a
  // successor.
  if (!path_.empty() && removes_file_) ::unlink(path_.c_str());
  path_.clear();
  socket_.Reset();
}

Result<std::optional<UniqueFd>> ListeningSocket::Accept() {
  for (;;) {
    UniqueFd socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) return std::optional<UniqueFd>(std::move(socket));
    // ECONNABORTED: a queued client has given up; others may be waiting.
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<UniqueFd>();
    return Failed("accepting on", path_);
  }
}

}  // namespace gpushared::ipc
