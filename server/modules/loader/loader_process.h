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

// A child that does one job. Killed and awaited when destroyed, if nobody has awaited it before.
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
  int pidfd() const { return pidfd_.get(); }  // Readable when it has ended.
  void Kill() const;
  // Waits; what waitpid says of it.
  int Await();

 private:
  pid_t pid_;  // -1: awaited.
  ipc::UniqueFd pidfd_;
};

// The process that makes children (RunLoader), and starts again where it has died.
//
// Owns the process and the channel to it. Thread-safe.
class LoaderProcess {
 public:
  // `command`: the program and its arguments.
  static Result<std::unique_ptr<LoaderProcess>> Start(std::vector<std::string> command);
  LoaderProcess(const LoaderProcess&) = delete;
  LoaderProcess& operator=(const LoaderProcess&) = delete;
  ~LoaderProcess();

  Result<Child> Make(const JobRequest& job, int image, int output);

 private:
  explicit LoaderProcess(std::vector<std::string> command) : command_(std::move(command)) {}
  Status Begin() GPUSHARED_REQUIRES(mutex_);
  void End() GPUSHARED_REQUIRES(mutex_);
  // A process ID; 0 when the loader is gone.
  pid_t Ask(const JobRequest& job, int image, int output) GPUSHARED_REQUIRES(mutex_);

  const std::vector<std::string> command_;
  Mutex mutex_;
  ipc::UniqueFd channel_ GPUSHARED_GUARDED_BY(mutex_);
  pid_t pid_ GPUSHARED_GUARDED_BY(mutex_) = -1;
};

}  // namespace gpushared::loader

#endif  // GPUSHARED_SERVER_MODULES_LOADER_LOADER_PROCESS_H_
