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

// Whoever started this process and looks after it: systemd, or another program that speaks its
// protocol of environment variables (sd_notify(3), sd_listen_fds(3)). There may be nobody.
//
// Thread-compatible.
class ServiceManager {
 public:
  // Reads the variables and removes them: workers must not think that they are meant. `warn` gets
  // sentences about variables that make no sense. Before there are other threads.
  template <typename Warn>
  explicit ServiceManager(const Warn& warn) {
    for (const std::string& what : Read()) warn(what);
  }

  // One or more lines such as "READY=1". A manager that does not listen is not waited for.
  void Tell(std::string_view lines) const;

  // How often it wants to hear "WATCHDOG=1"; unset: never. Half of what it waits for.
  std::optional<std::chrono::microseconds> watchdog_interval() const { return watchdog_interval_; }

  // The listening sockets that came with the start, once.
  std::vector<ipc::InheritedSocket> TakeSockets() { return std::move(sockets_); }

  // Executes a program in place of this process: same number, same children. It finds the same
  // manager, and the sockets, which are borrowed. Returns only where that fails, with everything as
  // before. The signals that a server handles are blocked until the successor can handle them.
  Status Execute(const std::string& program, const std::vector<std::string>& arguments,
                 const std::vector<ipc::BorrowedSocket>& sockets) const;
  // After the handlers are there.
  static void UnblockSignals();
  // How often this process was executed so.
  std::uint32_t executions() const { return executions_; }

 private:
  std::vector<std::string> Read();

  void Adopt(int fd, bool is_own, std::vector<std::string>& warnings);

  std::string notify_socket_, watchdog_text_;
  std::uint32_t executions_ = 0;
  std::optional<std::chrono::microseconds> watchdog_interval_;
  std::vector<ipc::InheritedSocket> sockets_;
};

// Whether stderr goes into systemd's journal, which takes a line's priority from "<4>" before it.
bool StderrIsJournal();

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_PLATFORM_SERVICE_MANAGER_H_
