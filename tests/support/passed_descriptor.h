// SPDX-License-Identifier: Apache-2.0
// Descriptors that a client can leave in a socket, of files that take arbitrarily long to close.

#ifndef GPUSHARED_TESTS_SUPPORT_PASSED_DESCRIPTOR_H_
#define GPUSHARED_TESTS_SUPPORT_PASSED_DESCRIPTOR_H_

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "ipc/unique_fd.h"

namespace gpushared::testing {

// Sends the bytes with one descriptor and closes it. Usually the receiver is then its last holder,
// but a quick receiver may close it before this function does. Returns false, with errno, if the
// descriptor is rejected.
inline bool SendWithDescriptor(int socket, std::span<const std::byte> bytes, ipc::UniqueFd fd) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const item = CMSG_FIRSTHDR(&message);
  item->cmsg_level = SOL_SOCKET;
  item->cmsg_type = SCM_RIGHTS;
  item->cmsg_len = CMSG_LEN(sizeof(int));
  const int number = fd.get();
  std::memcpy(CMSG_DATA(item), &number, sizeof number);
  const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  const int error = errno;
  fd.Reset();
  errno = error;
  return sent == static_cast<ssize_t>(bytes.size());
}

// A TCP socket with more data to send than its peer accepts, and with SO_LINGER, so that closing
// its last descriptor blocks for the linger time.
class LingeringSocket {
 public:
  explicit LingeringSocket(std::chrono::seconds lingers)
      : listening_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
        sending_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    const linger how = {.l_onoff = 1, .l_linger = static_cast<int>(lingers.count())};
    ready_ = ::bind(listening_.get(), any, bytes) == 0 && ::listen(listening_.get(), 1) == 0 &&
             ::getsockname(listening_.get(), any, &bytes) == 0 &&
             ::connect(sending_.get(), any, bytes) == 0 &&
             ::setsockopt(sending_.get(), SOL_SOCKET, SO_LINGER, &how, sizeof how) == 0;
    const std::vector<char> noise(1u << 20);
    while (ready_ && (::send(sending_.get(), noise.data(), noise.size(), MSG_DONTWAIT) > 0 ||
                      TakesMoreSoon())) {
    }
  }

  bool ready() const { return ready_; }
  ipc::UniqueFd Take() { return std::move(sending_); }

 private:
  // Returns whether the socket accepts more data soon. Even if its own buffer is full, the peer may
  // still have space, and then closing the socket would not linger.
  bool TakesMoreSoon() const {
    pollfd wanted{.fd = sending_.get(), .events = POLLOUT, .revents = 0};
    return ::poll(&wanted, 1, 200) > 0;
  }

  ipc::UniqueFd listening_;  // The peer; accepts and reads nothing.
  ipc::UniqueFd sending_;
  bool ready_ = false;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_PASSED_DESCRIPTOR_H_
