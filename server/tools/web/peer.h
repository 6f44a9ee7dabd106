// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_WEB_PEER_H_
#define GPUSHARED_SERVER_TOOLS_WEB_PEER_H_

#include <string>

namespace gpushared::web {

// The peer of a connected TCP socket, as a key for bounds and for messages: "uid 1000" for a
// process of this machine, because all users share its addresses; otherwise the address, of IPv6
// the network ("2001:db8:0:1::/64"), which one host has for itself. A local process also counts as
// its address where the kernel does not tell the user, as for a peer that has closed already. Empty
// when the socket is not connected.
std::string GetPeer(int socket);

}  // namespace gpushared::web

#endif  // GPUSHARED_SERVER_TOOLS_WEB_PEER_H_
