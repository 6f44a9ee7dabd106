// SPDX-License-Identifier: Apache-2.0
// Two ends of a socket, and how long a test waits for the other end.

#ifndef GPUSHARED_TESTS_IPC_SOCKET_PAIR_H_
#define GPUSHARED_TESTS_IPC_SOCKET_PAIR_H_

#include <sys/socket.h>

#include <chrono>

#include <gtest/gtest.h>

#include "ipc/unique_fd.h"
#include "ipc/unix_socket.h"

namespace gpushared::ipc {

inline Deadline Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(30); }

struct Pair {
  UniqueFd ours, theirs;
};

inline Pair MakePair() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace gpushared::ipc

#endif  // GPUSHARED_TESTS_IPC_SOCKET_PAIR_H_
