// SPDX-License-Identifier: Apache-2.0
#include "ipc/socket_path.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace gpushared::ipc {
namespace {

Result<std::string> Fitting(std::string path) {
  constexpr std::size_t kPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() > kPathBytesMax) {
    return Status(StatusCode::kInvalidArgument,
                  "socket path rejected: '" + path + "' has " + std::to_string(path.size()) +
                      " bytes, a socket address holds " + std::to_string(kPathBytesMax));
  }
  return path;
}

Result<std::string> Choose(const std::string& asked, const std::function<bool()>& system_wide,
                           const SocketSurroundings& around) {
  if (!asked.empty()) return Fitting(asked);
  if (std::string path = around.environment(kSocketVariable); !path.empty()) return Fitting(path);
  if (system_wide()) return std::string(kSystemSocketDirectory) + "/" + kSocketFile;
  if (std::string directory = around.environment("XDG_RUNTIME_DIR"); !directory.empty()) {
    return Fitting(directory + "/" + kSocketFile);
  }
  return Status(StatusCode::kInvalidArgument, "");
}

}  // namespace

SocketSurroundings SocketSurroundings::Real() {
  return {
      .environment =
          [](const char* variable) {
            // getenv is safe here, because gpushared modifies the environment only while a process
            // starts, and before it executes another program.
            const char* value = std::getenv(variable);
            return std::string(value == nullptr ? "" : value);
          },
      .make_directory =
          [](const std::string& directory) {
            // Clients of all users must be able to traverse the directory, regardless of the umask.
            if (::mkdir(directory.c_str(), 0755) == 0) ::chmod(directory.c_str(), 0755);
            return ::access(directory.c_str(), W_OK | X_OK) == 0;
          },
      .exists = [](const std::string& path) { return ::access(path.c_str(), F_OK) == 0; },
  };
}

Result<std::string> ServerSocketPath(const std::string& asked, const SocketSurroundings& around) {
  Result<std::string> path = Choose(
      asked, [&] { return around.make_directory(kSystemSocketDirectory); }, around);
  if (path.ok() || !path.status().message().empty()) return path;
  return Status(StatusCode::kInvalidArgument,
                "no place for the socket: /run/gpushared is not writable and XDG_RUNTIME_DIR is "
                "not set; give one with --socket or GPUSHARED_SOCKET");
}

Result<std::string> ClientSocketPath(const std::string& asked, const SocketSurroundings& around) {
  const auto system_wide = [&] {
    return around.exists(std::string(kSystemSocketDirectory) + "/" + kSocketFile);
  };
  // Lets a job that is configured for the MPS daemon find this server.
  std::string of_mps = around.environment(kMpsVariable);
  if (!of_mps.empty()) of_mps += std::string("/") + kSocketFile;
  const bool is_for_mps = asked.empty() && around.environment(kSocketVariable).empty() &&
                          !of_mps.empty() && around.exists(of_mps);
  Result<std::string> path = Choose(is_for_mps ? of_mps : asked, system_wide, around);
  if (path.ok() || !path.status().message().empty()) return path;
  return Status(StatusCode::kUnavailable,
                "no server found: /run/gpushared/gpushared.sock does not exist and "
                "XDG_RUNTIME_DIR is not set; name the server's socket with GPUSHARED_SOCKET");
}

Result<sockaddr_un> SocketAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty())
    return Status(StatusCode::kInvalidArgument, "socket path rejected: it is empty");
  if (Result<std::string> fits = Fitting(path); !fits.ok()) return fits.status();
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace gpushared::ipc
