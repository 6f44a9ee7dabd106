// SPDX-License-Identifier: Apache-2.0
// A real gpushared server of its own for one test: own socket, own log, gone with the object.

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
  int exit_code = -1;  // 128 + signal when one ended it.
  std::string output;  // stdout and stderr together.
};

// Runs a program to its end.
ProgramOutcome RunProgram(const std::vector<std::string>& command);

// Starts the program without waiting; the caller reaps the pid. Output goes to
// `log_path`, or nowhere when it is empty. One that the main thread started gets SIGTERM when this
// process ends before it.
pid_t StartProgram(const std::vector<std::string>& command, const std::string& log_path);

// True as soon as `condition` holds, false when it does not within `limit`.
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
  // Starts `gpushared --socket <own> <arguments>` and waits until it answers; a server
  // that never answers fails the current test with its log.
  explicit ServerProcess(std::vector<std::string> arguments = {});
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& socket() const { return socket_; }
  pid_t pid() const { return pid_; }
  // The broker's child processes, ascending.
  std::vector<pid_t> workers() const;
  std::string Log() const;
  // Output of `gpusharedctl --socket <own> <arguments>`.
  ProgramOutcome Ctl(std::vector<std::string> arguments) const;
  // Sends the signal to the broker.
  void Signal(int signal) const;
  // SIGKILL of the broker alone; its workers live on.
  void Crash();
  // Starts a broker again, as the first one was, and waits until it answers.
  void StartAgain();
  void StartWithoutWaiting();
  // The next start has the wanted argument in place of the old one.
  void ReplaceArgument(const std::string& old, const std::string& wanted);
  // Waits for the broker's end; its exit code, 128 + signal, or -1 after 20 s.
  int WaitForExit();

 private:
  ScratchDirectory directory_;
  std::string socket_;
  std::vector<std::string> command_;
  pid_t pid_ = -1;
};

// Open file descriptors and memory mappings of a process, to see that nothing leaks.
std::size_t OpenFileDescriptors(pid_t pid);
std::size_t MemoryMappings(pid_t pid);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_SERVER_PROCESS_H_
