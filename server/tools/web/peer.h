// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_WEB_PEER_H_
#define GPUSHARED_SERVER_TOOLS_WEB_PEER_H_

#include <string>

namespace gpushared::web {

// Returns the peer of a connected TCP socket, as a key for limits and messages: "uid 1000" for a
// process of this machine, because all users share its addresses; otherwise the address, or for
// IPv6 the network ("2001:db8:0:1::/64"), because one host may own a whole network. A local process
// is identified by its address, too, if the kernel does not report the user, for example because
// the peer has already closed. Empty if the socket is not connected.
std::string GetPeer(int socket);

}  // namespace gpushared::web

#endif  // GPUSHARED_SERVER_TOOLS_WEB_PEER_H_
