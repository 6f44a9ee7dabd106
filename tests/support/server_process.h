// SPDX-License-Identifier: Apache-2.0
// A real gpushared server for one test: with its own socket and log, stopped by the destructor.

#ifndef GPUSHARED_TESTS_SUPPORT_SERVER_PROCESS_H_
#define GPUSHARED_TESTS_SUPPORT_SERVER_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/scratch_directory.h"

namespace gpushared::testing {

// Exit code and output of a finished program.
struct ProgramOutcome {
  int exit_code = -1;  // 128 + signal if a signal ended the program.
  std::string output;  // stdout and stderr combined.
};

// Runs a program until it exits.
ProgramOutcome RunProgram(const std::vector<std::string>& command);

// Starts the program without waiting; the caller reaps the pid. Output goes to `log_path`, or is
// discarded if that is empty. A program that the main thread started gets SIGTERM if this process
// ends first.
pid_t StartProgram(const std::vector<std::string>& command, const std::string& log_path);

// Returns true as soon as `condition` holds, or false if it does not within `limit`.
template <typename Condition>
bool Eventually(Condition condition, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// Thread-compatible.
class ServerProcess {
 public:
  // Starts `gpushared --socket <own> <arguments>` and waits until it answers. If it never does,
  // fails the current test and prints the server's log.
  explicit ServerProcess(std::vector<std::string> arguments = {});
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& socket() const { return socket_; }
  pid_t pid() const { return pid_; }
  // Returns the broker's child processes, in ascending order.
  std::vector<pid_t> workers() const;
  std::string Log() const;
  // Runs `gpusharedctl --socket <own> <arguments>`.
  ProgramOutcome Ctl(std::vector<std::string> arguments) const;
  // Sends the signal to the broker.
  void Signal(int signal) const;
  // Kills only the broker with SIGKILL; its workers keep running.
  void Crash();
  // Starts a broker with the first one's arguments, and waits until it answers.
  void StartAgain();
  void StartWithoutWaiting();
  // Replaces an argument for the next start.
  void ReplaceArgument(const std::string& old, const std::string& wanted);
  // Waits for the broker to exit; returns its exit code, 128 + signal, or -1 after 20 s.
  int WaitForExit();

 private:
  ScratchDirectory directory_;
  std::string socket_;
  std::vector<std::string> command_;
  pid_t pid_ = -1;
};

// Return the number of open file descriptors and of memory mappings of a process, to detect leaks.
std::size_t OpenFileDescriptors(pid_t pid);
std::size_t MemoryMappings(pid_t pid);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_SERVER_PROCESS_H_
