// SPDX-License-Identifier: Apache-2.0
#include "server/modules/loader/loader_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace gpushared::loader {
namespace {

Status Failed(const std::string& what, int error) {
  return {StatusCode::kInternal,
          "module loader not started: " + what + ": " + std::generic_category().message(error)};
}

int AwaitProcess(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

Child::~Child() {
  if (pid_ < 0) return;
  Kill();
  Await();
}

// The process was not waited for, so its ID cannot have been reused.
void Child::Kill() const { ::kill(pid_, SIGKILL); }

int Child::Await() { return AwaitProcess(std::exchange(pid_, -1)); }

Result<std::unique_ptr<LoaderProcess>> LoaderProcess::Start(std::vector<std::string> command) {
  std::unique_ptr<LoaderProcess> loader(new LoaderProcess(std::move(command)));
  {
    const MutexLock lock(loader->mutex_);
    if (Status begun = loader->Begin(); !begun.ok()) return begun;
  }
  return loader;
}

LoaderProcess::~LoaderProcess() { End(); }

Status LoaderProcess::Begin() {
  std::array<int, 2> ends = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Failed("its channel", errno);
  }
  ipc::UniqueFd ours(ends[0]), theirs(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  // Our descriptor may already be 3, which dup2 would leave close-on-exec; adddup2 does not.
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), kLoaderChannelFd);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    ::posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  }
  std::vector<char*> arguments;
  for (const std::string& word : command_) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const int error =
      ::posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    pid_ = -1;
    return Failed("its process", error);
  }
  channel_ = std::move(ours);
  return {};
}

void LoaderProcess::End() {
  channel_.Reset();
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  AwaitProcess(std::exchange(pid_, -1));
}

pid_t LoaderProcess::Ask(const JobRequest& job, int image, int output) {
  const std::array<int, 2> fds = {image, output};
  JobRequest request = job;
  iovec bytes = {.iov_base = &request, .iov_len = sizeof request};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof fds)> control = {};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fds);
  std::memcpy(CMSG_DATA(header), fds.data(), sizeof fds);
  if (::sendmsg(channel_.get(), &message, MSG_NOSIGNAL) != sizeof request) return 0;
  std::int32_t answer = 0;
  ssize_t count = 0;
  do {
    count = ::recv(channel_.get(), &answer, sizeof answer, 0);
  } while (count < 0 && errno == EINTR);
  return count == sizeof answer ? answer : 0;
}

Result<Child> LoaderProcess::Make(const JobRequest& job, int image, int output) {
  const MutexLock lock(mutex_);
  pid_t pid = pid_ < 0 ? 0 : Ask(job, image, output);
  // The loader has died, for example because memory ran out or an operator killed it.
  if (pid == 0) {
    End();
    if (Status begun = Begin(); !begun.ok()) return begun;
    pid = Ask(job, image, output);
  }
  if (pid <= 0) return Failed("a child", pid == 0 ? EPIPE : -pid);
  ipc::UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  Child child(pid, std::move(pidfd));
  if (child.pidfd() < 0) return Failed("a descriptor of a child", errno);
  return child;
}

}  // namespace gpushared::loader
