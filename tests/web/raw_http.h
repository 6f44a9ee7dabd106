// SPDX-License-Identifier: Apache-2.0
// A client that sends the given bytes and reads the answer.

#ifndef GPUSHARED_TESTS_WEB_RAW_HTTP_H_
#define GPUSHARED_TESTS_WEB_RAW_HTTP_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "ipc/unique_fd.h"

namespace gpushared::testing {

// Thread-compatible.
class RawHttp {
 public:
  // `receive_bytes`: size of the socket's receive buffer; 0: the kernel's default. `from`: a
  // loopback address.
  explicit RawHttp(std::uint16_t port, int receive_bytes = 0, const char* from = "127.0.0.1")
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_bytes != 0) {
      ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    }
    sockaddr_in at{};
    at.sin_family = AF_INET;
    ::inet_pton(AF_INET, from, &at.sin_addr);
    is_connected_ = ::bind(socket_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ =
        is_connected_ && ::connect(socket_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
  }

  bool is_connected() const { return is_connected_; }
  // Returns false if the text cannot be sent completely.
  bool Send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  // Reads until the server closes the connection, or until `limit` has passed.
  std::string ReadAll(std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    return ReadUntil("", limit);
  }
  // Reads like ReadAll, and also stops when the received text ends with `end_text`, unless
  // `end_text` is empty.
  std::string ReadUntil(std::string_view end_text,
                        std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    std::string all;
    std::array<char, 65536> part{};
    const auto end = std::chrono::steady_clock::now() + limit;
    while (true) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      pollfd ready = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
      if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) return all;
      const ssize_t got = ::recv(socket_.get(), part.data(), part.size(), 0);
      was_closed_ = got <= 0;
      if (was_closed_) return all;
      all.append(part.data(), static_cast<std::size_t>(got));
      if (!end_text.empty() && all.ends_with(end_text)) return all;
    }
  }
  // Returns whether ReadAll ended because the server closed the connection.
  bool was_closed() const { return was_closed_; }

  static std::string Get(std::uint16_t port, const std::string& path,
                         const std::string& headers = "Host: localhost\r\n",
                         const std::string& method = "GET") {
    RawHttp http(port);
    http.Send(method + " " + path + " HTTP/1.1\r\n" + headers + "\r\n");
    return http.ReadAll();
  }

 private:
  ipc::UniqueFd socket_;
  bool is_connected_ = false, was_closed_ = false;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_WEB_RAW_HTTP_H_
