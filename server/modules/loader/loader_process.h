// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_MODULES_LOADER_LOADER_PROCESS_H_
#define GPUSHARED_SERVER_MODULES_LOADER_LOADER_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/unique_fd.h"
#include "server/modules/loader/child.h"

namespace gpushared::loader {

// A child process that does one job. The destructor kills it and waits for it, unless it was waited
// for before.
//
// Thread-compatible.
class Child {
 public:
  Child(pid_t pid, ipc::UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)) {}
  Child& operator=(Child&&) = delete;
  ~Child();

  pid_t pid() const { return pid_; }
  // Returns a descriptor that becomes readable when the child has ended.
  int pidfd() const { return pidfd_.get(); }
  void Kill() const;
  // Waits and returns the status of waitpid.
  int Await();

 private:
  pid_t pid_;  // -1 after waiting.
  ipc::UniqueFd pidfd_;
};

// The loader process, which creates children (RunLoader). It is restarted if it has died.
//
// Owns the process and its channel. Thread-safe.
class LoaderProcess {
 public:
  // `command` is the program and its arguments.
  static Result<std::unique_ptr<LoaderProcess>> Start(std::vector<std::string> command);
  LoaderProcess(const LoaderProcess&) = delete;
  LoaderProcess& operator=(const LoaderProcess&) = delete;
  ~LoaderProcess();

  Result<Child> Make(const JobRequest& job, int image, int output);

 private:
  explicit LoaderProcess(std::vector<std::string> command) : command_(std::move(command)) {}
  Status Begin() GPUSHARED_REQUIRES(mutex_);
  void End() GPUSHARED_REQUIRES(mutex_);
  // Returns a process ID, or 0 if the loader has died.
  pid_t Ask(const JobRequest& job, int image, int output) GPUSHARED_REQUIRES(mutex_);

  const std::vector<std::string> command_;
  Mutex mutex_;
  ipc::UniqueFd channel_ GPUSHARED_GUARDED_BY(mutex_);
  pid_t pid_ GPUSHARED_GUARDED_BY(mutex_) = -1;
};

}  // namespace gpushared::loader

#endif  // GPUSHARED_SERVER_MODULES_LOADER_LOADER_PROCESS_H_
