// SPDX-License-Identifier: Apache-2.0
#include "tests/support/server_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "tests/support/read_file.h"
#include "tests/support/stacks.h"

namespace gpushared::testing {
namespace {

int ExitCode(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

// Returns whether the process `server` has ended a connection at the path that sends nothing. That
// a connection is accepted does not suffice, because the server's other endpoints may not be open
// yet. Checks the process, because a child of the previous server may still hold that server's
// socket until the child executes the worker's program.
bool Serves(const std::string& socket_path, pid_t server) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected =
      ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ucred listener{};
  socklen_t bytes = sizeof listener;
  const bool is_known = ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &listener, &bytes) == 0;
  bool is_served = false;
  if (connected && is_known && listener.pid == server) {
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::shutdown(fd, SHUT_WR);
    std::array<char, 256> answer{};
    ssize_t received = 0;
    while ((received = ::recv(fd, answer.data(), answer.size(), 0)) > 0) {
    }
    is_served = received == 0 || errno == ECONNRESET;
  }
  ::close(fd);
  return is_served;
}

}  // namespace

pid_t StartProgram(const std::vector<std::string>& command, const std::string& log_path) {
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const std::string path = log_path.empty() ? "/dev/null" : log_path;
  // The parent-death signal is sent when the thread that forked exits.
  const bool is_main_thread = ::gettid() == ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  if (is_main_thread) ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int log = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

ProgramOutcome RunProgram(const std::vector<std::string>& command) {
  const ScratchDirectory directory;
  const std::string log = directory / "output";
  const pid_t pid = StartProgram(command, log);
  int status = 0;
  ::waitpid(pid, &status, 0);
  ProgramOutcome outcome{ExitCode(status), ReadFile(log)};
  return outcome;
}

ServerProcess::ServerProcess(std::vector<std::string> arguments)
    : socket_(directory_ / "gpushared.sock") {
  command_ = {GPUSHARED_BIN_DIR "/gpushared", "--socket", socket_};
  command_.insert(command_.end(), arguments.begin(), arguments.end());
  StartAgain();
}

void ServerProcess::Crash() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void ServerProcess::StartWithoutWaiting() { pid_ = StartProgram(command_, directory_ / "log"); }

void ServerProcess::ReplaceArgument(const std::string& old, const std::string& wanted) {
  std::ranges::replace(command_, old, wanted);
}

void ServerProcess::StartAgain() {
  StartWithoutWaiting();
  if (!Eventually([&] { return Serves(socket_, pid_); }))
    ADD_FAILURE() << "the server never answered:\n" << Log();
}

ServerProcess::~ServerProcess() {
  if (pid_ > 0) {
    // Workers outlive their broker to finish sessions, but must not outlive the test.
    const std::vector<pid_t> left = workers();
    // The first signal drains the server, the second one stops it at once. Two signals that arrive
    // together may be merged into one, so they are repeated until the server exits.
    const bool ended = Eventually([&] {
      ::kill(pid_, SIGTERM);
      return ::waitpid(pid_, nullptr, WNOHANG) != 0;
    });
    if (!ended) {
      std::string stacks = Stacks(pid_);
      for (const pid_t worker : left) stacks += Stacks(worker);
      ADD_FAILURE() << "the server did not stop\n" << stacks;
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    for (const pid_t worker : left) ::kill(worker, SIGKILL);
  }
  if (::testing::Test::HasFailure())
    std::fprintf(stderr, "--- server log:\n%s---\n", Log().c_str());
}

std::vector<pid_t> ServerProcess::workers() const {
  std::ifstream children("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) +
                         "/children");
  std::vector<pid_t> pids{std::istream_iterator<pid_t>(children), std::istream_iterator<pid_t>()};
  std::sort(pids.begin(), pids.end());
  return pids;
}

std::string ServerProcess::Log() const { return ReadFile(directory_ / "log"); }

ProgramOutcome ServerProcess::Ctl(std::vector<std::string> arguments) const {
  std::vector<std::string> command = {GPUSHARED_BIN_DIR "/gpusharedctl", "--socket", socket_};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return RunProgram(command);
}

void ServerProcess::Signal(int signal) const { ::kill(pid_, signal); }

int ServerProcess::WaitForExit() {
  int status = 0;
  const bool ended = Eventually([&] { return ::waitpid(pid_, &status, WNOHANG) != 0; });
  if (!ended) return -1;
  pid_ = -1;
  return ExitCode(status);
}

namespace {

std::size_t Entries(const std::string& directory) {
  std::size_t count = 0;
  DIR* entries = ::opendir(directory.c_str());
  while (entries != nullptr && ::readdir(entries) != nullptr) ++count;
  if (entries != nullptr) ::closedir(entries);
  return count;
}

}  // namespace

std::size_t OpenFileDescriptors(pid_t pid) {
  return Entries("/proc/" + std::to_string(pid) + "/fd");
}

std::size_t MemoryMappings(pid_t pid) {
  const std::string maps = ReadFile("/proc/" + std::to_string(pid) + "/maps");
  return static_cast<std::size_t>(std::count(maps.begin(), maps.end(), '\n'));
}

}  // namespace gpushared::testing
