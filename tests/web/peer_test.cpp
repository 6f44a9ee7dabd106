// SPDX-License-Identifier: Apache-2.0
#include "server/tools/web/peer.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include <gtest/gtest.h>

#include "ipc/unique_fd.h"

namespace gpushared::web {
namespace {

// A connection over the loopback interface.
class Pair {
 public:
  // If `is_dual`, the listening socket is IPv6 and the client's IPv4.
  explicit Pair(int family, bool is_dual = false) {
    const ipc::UniqueFd listener(::socket(is_dual ? AF_INET6 : family, SOCK_STREAM, 0));
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = is_dual ? sockaddr_in6{}.sin6_addr : in6addr_loopback;
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool is_v6 = family == AF_INET6 || is_dual;
    auto* at = is_v6 ? reinterpret_cast<sockaddr*>(&v6) : reinterpret_cast<sockaddr*>(&v4);
    socklen_t bytes = is_v6 ? sizeof v6 : sizeof v4;
    if (::bind(listener.get(), at, bytes) != 0 || ::listen(listener.get(), 1) != 0 ||
        ::getsockname(listener.get(), at, &bytes) != 0) {
      return;
    }
    v4.sin_port = is_v6 ? v6.sin6_port : v4.sin_port;
    client = ipc::UniqueFd(::socket(family, SOCK_STREAM, 0));
    const auto* to = family == AF_INET6 ? reinterpret_cast<const sockaddr*>(&v6)
                                        : reinterpret_cast<const sockaddr*>(&v4);
    if (::connect(client.get(), to, family == AF_INET6 ? sizeof v6 : sizeof v4) != 0) return;
    server = ipc::UniqueFd(::accept(listener.get(), nullptr, nullptr));
  }

  ipc::UniqueFd client, server;
};

const std::string& Me() {
  static const std::string name = "uid " + std::to_string(::geteuid());
  return name;
}

TEST(Peer, OnThisMachineIsIdentifiedByUser) {
  EXPECT_EQ(GetPeer(Pair(AF_INET).server.get()), Me());
}

TEST(Peer, OnThisMachineIsIdentifiedByUserOverIpv6) {
  const Pair v6(AF_INET6), dual(AF_INET, true);
  if (!v6.server.valid()) GTEST_SKIP() << "there is no IPv6 on this machine";
  EXPECT_EQ(GetPeer(v6.server.get()), Me());
  EXPECT_EQ(GetPeer(dual.server.get()), Me());
}

TEST(Peer, HalfClosedConnectionKeepsItsUser) {
  Pair pair(AF_INET);
  ::shutdown(pair.client.get(), SHUT_WR);
  EXPECT_EQ(GetPeer(pair.server.get()), Me());
  // After the client has closed its socket, the kernel reports root as the owner.
  pair.client = ipc::UniqueFd();
  EXPECT_EQ(GetPeer(pair.server.get()), "127.0.0.1");
}

TEST(Peer, OverIpv6IsIdentifiedByNetwork) {
  Pair pair(AF_INET6);
  if (!pair.server.valid()) GTEST_SKIP() << "there is no IPv6 on this machine";
  pair.client = ipc::UniqueFd();
  EXPECT_EQ(GetPeer(pair.server.get()), "::/64");
}

TEST(Peer, OfUnconnectedSocketIsUnknown) {
  EXPECT_EQ(GetPeer(ipc::UniqueFd(::socket(AF_INET, SOCK_STREAM, 0)).get()), "");
}

}  // namespace
}  // namespace gpushared::web
