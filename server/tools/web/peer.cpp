// SPDX-License-Identifier: Apache-2.0
#include "server/tools/web/peer.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "ipc/unique_fd.h"

namespace gpushared::web {
namespace {

// Words of an IPv6 address that identify a peer, because one host may own a whole /64.
constexpr std::size_t kNetworkWords = 2;

// Endpoint of a connection, in network byte order. The first word of `address` holds an IPv4
// address.
struct End {
  int family = AF_UNSPEC;
  std::uint16_t port = 0;
  std::array<std::uint32_t, 4> address{};
};

End GetEnd(int socket, decltype(::getpeername)* name_of) {
  sockaddr_storage at{};
  socklen_t bytes = sizeof at;
  End end;
  if (name_of(socket, reinterpret_cast<sockaddr*>(&at), &bytes) != 0) return end;
  if (at.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(at);
    end = {.family = AF_INET, .port = v4.sin_port, .address = {v4.sin_addr.s_addr}};
  } else if (at.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(at);
    end = {.family = AF_INET6, .port = v6.sin6_port};
    std::memcpy(end.address.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
    // An IPv6 listener reports IPv4 peers in this form.
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      end = {.family = AF_INET, .port = end.port, .address = {end.address.back()}};
    }
  }
  return end;
}

// Returns the owner of the socket with local endpoint `of` and peer `to`, if it is on this machine.
std::optional<std::uint32_t> GetUser(const End& of, const End& to) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 request;
  } question{};
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.request.sdiag_family = static_cast<__u8>(of.family);
  question.request.sdiag_protocol = IPPROTO_TCP;
  inet_diag_sockid& id = question.request.id;
  id.idiag_sport = of.port;
  id.idiag_dport = to.port;
  std::ranges::copy(of.address, id.idiag_src);
  std::ranges::copy(to.address, id.idiag_dst);
  std::ranges::fill(id.idiag_cookie, INET_DIAG_NOCOOKIE);
  struct {
    nlmsghdr header;
    inet_diag_msg message;
    std::array<std::byte, 1024> more;
  } answer{};
  const ipc::UniqueFd kernel(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!kernel.valid() || ::send(kernel.get(), &question, sizeof question, 0) < 0) return {};
  // Does not block, because the kernel has already answered during send.
  const ssize_t got = ::recv(kernel.get(), &answer, sizeof answer, MSG_DONTWAIT);
  const bool is_whole = got >= static_cast<ssize_t>(offsetof(decltype(answer), more));
  if (!is_whole || answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY) return {};
  // If no such connection exists, the kernel may return a listener on that port. A socket that its
  // process has closed has no inode, and is reported as root's.
  if (answer.message.idiag_state == TCP_LISTEN || answer.message.idiag_inode == 0) return {};
  return answer.message.idiag_uid;
}

}  // namespace

std::string GetPeer(int socket) {
  End peer = GetEnd(socket, ::getpeername);
  if (peer.family == AF_UNSPEC) return {};
  if (const auto user = GetUser(peer, GetEnd(socket, ::getsockname))) {
    return "uid " + std::to_string(*user);
  }
  const bool is_v6 = peer.family == AF_INET6;
  if (is_v6) std::fill(peer.address.begin() + kNetworkWords, peer.address.end(), 0);
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(peer.family, peer.address.data(), text.data(), text.size());
  return std::string(text.data()) + (is_v6 ? "/64" : "");
}

}  // namespace gpushared::web
