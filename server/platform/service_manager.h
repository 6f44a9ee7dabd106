// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PLATFORM_SERVICE_MANAGER_H_
#define GPUSHARED_SERVER_PLATFORM_SERVICE_MANAGER_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/status.h"

#include "ipc/listening_socket.h"

namespace gpushared::server {

// Connection to the service manager that started this process: systemd, or another program that
// uses its protocol of environment variables (sd_notify(3), sd_listen_fds(3)). Does nothing if
// there is no manager.
//
// Thread-compatible.
class ServiceManager {
 public:
  // Reads the variables and removes them, so that workers do not take them for their own. Calls
  // `warn` with a message for each invalid variable. Must be called before other threads are
  // started.
  template <typename Warn>
  explicit ServiceManager(const Warn& warn) {
    for (const std::string& what : Read()) warn(what);
  }

  // Sends one or more lines such as "READY=1". Never blocks.
  void Notify(std::string_view lines) const;

  // Returns the interval for sending "WATCHDOG=1", half of the manager's timeout; unset if the
  // manager has no timeout.
  std::optional<std::chrono::microseconds> watchdog_interval() const { return watchdog_interval_; }

  // Returns the inherited listening sockets; may be called once.
  std::vector<ipc::InheritedSocket> TakeSockets() { return std::move(sockets_); }

  // Executes a program in place of this process, which keeps its process id and its children. The
  // program inherits the connection to the service manager and `sockets`, which the caller
  // continues to own if the call fails. Returns only on failure, with everything unchanged. The
  // signals that a server handles are blocked until the successor can handle them.
  Status Execute(const std::string& program, const std::vector<std::string>& arguments,
                 const std::vector<ipc::BorrowedSocket>& sockets) const;
  // Must be called after the signal handlers are installed.
  static void UnblockSignals();
  // Returns how often Execute has replaced the program of this process.
  std::uint32_t executions() const { return executions_; }

 private:
  std::vector<std::string> Read();

  void Adopt(int fd, bool is_own, std::vector<std::string>& warnings);

  std::string notify_socket_, watchdog_text_;
  std::uint32_t executions_ = 0;
  std::optional<std::chrono::microseconds> watchdog_interval_;
  std::vector<ipc::InheritedSocket> sockets_;
};

// Returns whether stderr is connected to systemd's journal, which takes a line's priority from a
// prefix such as "<4>".
bool StderrIsJournal();

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_PLATFORM_SERVICE_MANAGER_H_
