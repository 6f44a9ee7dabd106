// SPDX-License-Identifier: Apache-2.0
// Where the server's socket is, and its address.

#ifndef GPUSHARED_IPC_SOCKET_PATH_H_
#define GPUSHARED_IPC_SOCKET_PATH_H_

#include <sys/un.h>

#include <functional>
#include <string>

#include "gpushared/result.h"

namespace gpushared::ipc {

inline constexpr const char* kSocketVariable = "GPUSHARED_SOCKET";
inline constexpr const char* kMpsVariable = "CUDA_MPS_PIPE_DIRECTORY";  // Clients alone read it.
inline constexpr const char* kSystemSocketDirectory = "/run/gpushared";
inline constexpr const char* kSocketFile = "gpushared.sock";

// What the rules ask of the machine; tests put their own in.
struct SocketSurroundings {
  std::function<std::string(const char* variable)> environment;  // Empty when unset.
  // Makes it, for all users to pass through, if it is not there; whether we may write in it.
  std::function<bool(const std::string& directory)> make_directory;
  std::function<bool(const std::string& path)> exists;
  static SocketSurroundings Real();
};

// For the server: `asked` (--socket) if not empty, else $GPUSHARED_SOCKET, else
// /run/gpushared/gpushared.sock if that directory is writable (root's server makes it), else
// $XDG_RUNTIME_DIR/gpushared.sock. kInvalidArgument when none applies or the path is longer than
// a socket address holds.
Result<std::string> ServerSocketPath(const std::string& asked,
                                     const SocketSurroundings& around = SocketSurroundings::Real());

// For clients: the same, but gpushared.sock in $CUDA_MPS_PIPE_DIRECTORY, and then
// /run/gpushared/gpushared.sock, count if they exist.
Result<std::string> ClientSocketPath(const std::string& asked,
                                     const SocketSurroundings& around = SocketSurroundings::Real());

// For bind and connect. kInvalidArgument when the path is empty or longer than it holds.
Result<sockaddr_un> SocketAddress(const std::string& path);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_SOCKET_PATH_H_
