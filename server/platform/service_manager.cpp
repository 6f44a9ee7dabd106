// SPDX-License-Identifier: Apache-2.0
#include "server/platform/service_manager.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "ipc/unique_fd.h"

namespace gpushared::server {
namespace {

constexpr int kFirstSocket = 3;  // The value of SD_LISTEN_FDS_START.
constexpr std::uint32_t kSocketsMax = 1024, kFdMax = 1 << 20;
// Variable set by a program that executed this one in its place. Contains the number of such
// executions and the sockets that it passed.
constexpr const char* kHandedOver = "GPUSHARED_HANDED_OVER";
constexpr int kHandledSignals[] = {SIGTERM, SIGINT, SIGHUP};

std::string TakeVariable(const char* name) {
  const char* value = ::getenv(name);
  std::string text = value != nullptr ? value : "";
  ::unsetenv(name);
  return text;
}

template <typename Number>
std::optional<Number> NumberIn(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Returns whether variables are meant for this process. `pid` is the process that they name; empty
// if they name none.
bool IsForUs(const std::string& pid) {
  return pid.empty() || NumberIn<std::int64_t>(pid) == std::int64_t{::getpid()};
}

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(':');
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

void SetCloseOnExec(int fd, bool is_set) { (void)::fcntl(fd, F_SETFD, is_set ? FD_CLOEXEC : 0); }

}  // namespace

std::vector<std::string> ServiceManager::Read() {
  std::vector<std::string> warnings;
  notify_socket_ = TakeVariable("NOTIFY_SOCKET");
  const std::string watchdog_pid = TakeVariable("WATCHDOG_PID");
  const std::string watchdog = TakeVariable("WATCHDOG_USEC");
  if (!watchdog.empty() && IsForUs(watchdog_pid)) {
    const auto usec = NumberIn<std::uint64_t>(watchdog);
    const std::uint64_t most = std::chrono::microseconds(std::chrono::hours(24)).count();
    if (usec && *usec >= 2 && *usec <= most) {
      watchdog_text_ = watchdog;
      watchdog_interval_ = std::chrono::microseconds(*usec / 2);
    } else {
      warnings.push_back("variable WATCHDOG_USEC rejected: asked for '" + watchdog +
                         "', allowed: microseconds from 2 to a day");
    }
  }
  const std::string handed_over = TakeVariable(kHandedOver);
  bool is_first = true;
  for (std::string_view each : Split(handed_over)) {
    const bool is_own = each.ends_with('o');
    if (is_own) each.remove_suffix(1);
    const auto number = NumberIn<std::uint32_t>(each);
    if (!number || *number > kFdMax) break;
    if (!std::exchange(is_first, false)) {
      Adopt(static_cast<int>(*number), is_own, warnings);
    } else {
      executions_ = *number;
    }
  }
  const std::string listen_pid = TakeVariable("LISTEN_PID");
  const std::string count_text = TakeVariable("LISTEN_FDS");
  // The names are ignored, because sockets are identified by their paths.
  (void)TakeVariable("LISTEN_FDNAMES");
  if (count_text.empty() || listen_pid.empty() || !IsForUs(listen_pid)) return warnings;
  const auto count = NumberIn<std::uint32_t>(count_text);
  if (!count || *count > kSocketsMax) {
    warnings.push_back("variable LISTEN_FDS rejected: asked for '" + count_text +
                       "', allowed: 0 to " + std::to_string(kSocketsMax));
    return warnings;
  }
  for (std::uint32_t i = 0; i < *count; ++i) {
    Adopt(kFirstSocket + static_cast<int>(i), /*is_own=*/false, warnings);
  }
  return warnings;
}

void ServiceManager::Adopt(int fd, bool is_own, std::vector<std::string>& warnings) {
  SetCloseOnExec(fd, true);
  Result<ipc::InheritedSocket> socket = ipc::InheritedSocket::Examine(ipc::UniqueFd(fd));
  if (!socket.ok()) {
    warnings.push_back("descriptor " + std::to_string(fd) +
                       ", which came with the start, is not used: " + socket.status().message());
    return;
  }
  socket->is_own = is_own;
  sockets_.push_back(*std::move(socket));
}

void ServiceManager::Notify(std::string_view lines) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (notify_socket_.empty() || notify_socket_.size() >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, notify_socket_.data(), notify_socket_.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const ipc::UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return;
  const auto bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + notify_socket_.size());
  (void)::sendto(socket.get(), lines.data(), lines.size(), MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&address), bytes);
}

Status ServiceManager::Execute(const std::string& program,
                               const std::vector<std::string>& arguments,
                               const std::vector<ipc::BorrowedSocket>& sockets) const {
  std::string list = std::to_string(executions_ + 1);
  for (const ipc::BorrowedSocket& each : sockets) {
    list += ":" + std::to_string(each.fd) + (each.is_own ? "o" : "");
  }
  ::setenv(kHandedOver, list.c_str(), 1);
  if (!notify_socket_.empty()) ::setenv("NOTIFY_SOCKET", notify_socket_.c_str(), 1);
  if (!watchdog_text_.empty()) ::setenv("WATCHDOG_USEC", watchdog_text_.c_str(), 1);
  for (const ipc::BorrowedSocket& each : sockets) SetCloseOnExec(each.fd, false);
  sigset_t handled, before;
  sigemptyset(&handled);
  for (const int signal : kHandledSignals) sigaddset(&handled, signal);
  ::pthread_sigmask(SIG_BLOCK, &handled, &before);
  std::vector<std::string> copies = arguments;
  std::vector<char*> pointers;
  pointers.reserve(copies.size() + 1);
  for (std::string& each : copies) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  ::execve(program.c_str(), pointers.data(), environ);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  for (const ipc::BorrowedSocket& each : sockets) SetCloseOnExec(each.fd, true);
  for (const char* name : {kHandedOver, "NOTIFY_SOCKET", "WATCHDOG_USEC"}) ::unsetenv(name);
  return {StatusCode::kInternal,
          "executing '" + program + "' failed: " + std::generic_category().message(error)};
}

void ServiceManager::UnblockSignals() {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int signal : kHandledSignals) sigaddset(&handled, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &handled, nullptr);
}

bool StderrIsJournal() {
  const char* const stream = ::getenv("JOURNAL_STREAM");
  struct stat facts {};
  if (stream == nullptr || ::fstat(STDERR_FILENO, &facts) != 0) return false;
  return std::to_string(facts.st_dev) + ":" + std::to_string(facts.st_ino) == stream;
}

}  // namespace gpushared::server
