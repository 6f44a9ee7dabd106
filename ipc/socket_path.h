// SPDX-License-Identifier: Apache-2.0
// Path and address of the server's socket.

#ifndef GPUSHARED_IPC_SOCKET_PATH_H_
#define GPUSHARED_IPC_SOCKET_PATH_H_

#include <sys/un.h>

#include <functional>
#include <string>

#include "gpushared/result.h"

namespace gpushared::ipc {

inline constexpr const char* kSocketVariable = "GPUSHARED_SOCKET";
// Only clients read this variable.
inline constexpr const char* kMpsVariable = "CUDA_MPS_PIPE_DIRECTORY";
inline constexpr const char* kSystemSocketDirectory = "/run/gpushared";
inline constexpr const char* kSocketFile = "gpushared.sock";

// System calls that the lookup depends on; tests replace them.
struct SocketSurroundings {
  // Returns the value of the variable; empty if it is not set.
  std::function<std::string(const char* variable)> environment;
  // Creates the directory, traversable by all users, if it does not exist. Returns whether this
  // process may write to it.
  std::function<bool(const std::string& directory)> make_directory;
  std::function<bool(const std::string& path)> exists;
  static SocketSurroundings Real();
};

// Returns the path for a server: `asked` (--socket) if not empty, else $GPUSHARED_SOCKET, else
// /run/gpushared/gpushared.sock if that directory is writable (a server of root creates it), else
// $XDG_RUNTIME_DIR/gpushared.sock. kInvalidArgument if none applies or if the path does not fit
// into a socket address.
Result<std::string> ServerSocketPath(const std::string& asked,
                                     const SocketSurroundings& around = SocketSurroundings::Real());

// Returns the path for a client: `asked` (--socket) if not empty, else $GPUSHARED_SOCKET, else
// gpushared.sock in $CUDA_MPS_PIPE_DIRECTORY if that file exists, else
// /run/gpushared/gpushared.sock if that file exists, else $XDG_RUNTIME_DIR/gpushared.sock.
// kUnavailable if none applies; kInvalidArgument if the path does not fit into a socket address.
Result<std::string> ClientSocketPath(const std::string& asked,
                                     const SocketSurroundings& around = SocketSurroundings::Real());

// Returns the address for bind and connect. kInvalidArgument if the path is empty or too long.
Result<sockaddr_un> SocketAddress(const std::string& path);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_SOCKET_PATH_H_
