// SPDX-License-Identifier: Apache-2.0
#include "server/broker/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>

namespace gpushared::server {
namespace {

using boost::asio::posix::descriptor_base;

// Messages per loop iteration, so that a worker that sends many cannot starve the others.
constexpr int kMessagesPerTurn = 64;

std::string ErrorText(int error) { return std::generic_category().message(error); }

Status Failed(const std::string& what, int error) {
  return {StatusCode::kInternal, what + " failed: " + ErrorText(error)};
}

// Arguments of posix_spawn with RAII.
struct SpawnPlan {
  posix_spawn_file_actions_t actions{};
  posix_spawnattr_t attributes{};
  SpawnPlan() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
};

int Prepare(SpawnPlan& plan, int channel) {
  int error =
      ::posix_spawn_file_actions_addopen(&plan.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  // Duplicating a descriptor onto itself clears close-on-exec; glibc guarantees this.
  if (error == 0) {
    error = ::posix_spawn_file_actions_adddup2(&plan.actions, channel, kWorkerChannelFd);
  }
  if (error == 0) {
    error = ::posix_spawn_file_actions_addclosefrom_np(&plan.actions, kWorkerChannelFd + 1);
  }
  if (error == 0) error = ::posix_spawnattr_setpgroup(&plan.attributes, 0);
  sigset_t none;
  sigemptyset(&none);
  if (error == 0) error = ::posix_spawnattr_setsigmask(&plan.attributes, &none);
  if (error == 0) {
    error = ::posix_spawnattr_setflags(&plan.attributes,
                                       POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  }
  return error;
}

// The broker's environment, overridden by the launch's variables.
std::vector<std::string> GetEnvironment(const WorkerProcess::Launch& launch) {
  std::vector<std::string> variables = launch.environment;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view variable(*at);
    const std::string_view name = variable.substr(0, variable.find('=') + 1);
    const bool replaced =
        std::any_of(launch.environment.begin(), launch.environment.end(),
                    [&](const std::string& own) { return own.starts_with(name); });
    if (!replaced) variables.emplace_back(variable);
  }
  return variables;
}

Result<pid_t> Spawn(const WorkerProcess::Launch& launch, int channel) {
  SpawnPlan plan;
  if (const int error = Prepare(plan, channel); error != 0) {
    return Failed("preparing a worker process", error);
  }
  std::vector<char*> arguments;
  std::string name = "gpushared";
  arguments.push_back(name.data());
  std::vector<std::string> copies = launch.arguments;
  arguments.reserve(copies.size() + 2);
  for (std::string& argument : copies) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  std::vector<std::string> variables = GetEnvironment(launch);
  std::vector<char*> environment;
  environment.reserve(variables.size() + 1);
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, launch.program.c_str(), &plan.actions, &plan.attributes,
                                  arguments.data(), environment.data());
  if (error != 0) return Failed("starting worker program " + launch.program, error);
  return pid;
}

// `by_us`: whether this broker sent SIGKILL, in which case it reports the reason itself.
std::string DescribeExit(const siginfo_t& info, bool by_us) {
  if (info.si_code == CLD_EXITED) return "exited with code " + std::to_string(info.si_status);
  const char* name = ::sigdescr_np(info.si_status);
  return "was killed by signal " + std::to_string(info.si_status) + " (" +
         (name != nullptr ? name : "unknown") + ")" +
         (info.si_status == SIGKILL && !by_us ? ", by a user or by the kernel for lack of memory"
                                              : "");
}

}  // namespace

Result<std::shared_ptr<WorkerProcess>> WorkerProcess::Start(boost::asio::io_context& context,
                                                            const Launch& launch, Events events) {
  auto pair = ipc::MakeChannelPair();
  if (!pair.ok()) return pair.status();
  Result<pid_t> pid = Spawn(launch, pair->second.get());
  if (!pid.ok()) return pid.status();
  // The child has not been reaped, so its process id cannot have been reused.
  ipc::UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, *pid, 0)));
  if (!pidfd.valid()) {
    const int error = errno;
    ::kill(*pid, SIGKILL);
    ::waitpid(*pid, nullptr, 0);
    return Failed("opening a pidfd of the worker", error);
  }
  std::shared_ptr<WorkerProcess> worker(new WorkerProcess(context, *pid, std::move(pair->first),
                                                          std::move(pidfd), std::move(events)));
  worker->WaitForMessage();
  worker->WaitForExit();
  return worker;
}

std::shared_ptr<WorkerProcess> WorkerProcess::Adopt(boost::asio::io_context& context,
                                                    ipc::FoundWorker found, Events events) {
  std::shared_ptr<WorkerProcess> worker(new WorkerProcess(
      context, found.pid, std::move(found.channel), std::move(found.pidfd), std::move(events)));
  worker->WaitForMessage();
  worker->WaitForExit();
  return worker;
}

WorkerProcess::WorkerProcess(boost::asio::io_context& context, pid_t pid, ipc::UniqueFd channel,
                             ipc::UniqueFd pidfd, Events events)
    : pid_(pid),
      events_(std::move(events)),
      channel_(context, channel.Release()),
      pidfd_(context, pidfd.Release()) {}

// The handlers hold weak pointers, because destroying the object cancels the waits and their
// handlers run later.
void WorkerProcess::WaitForMessage() {
  channel_.async_wait(descriptor_base::wait_read,
                      [weak = weak_from_this()](const boost::system::error_code& error) {
                        const auto self = weak.lock();
                        if (!self || error) return;
                        if (self->ReadMessages()) {
                          self->WaitForMessage();
                        } else {
                          self->channel_open_ = false;
                        }
                      });
}

void WorkerProcess::TakeMessages() {
  if (channel_open_ && !ReadMessages()) channel_open_ = false;
}

bool WorkerProcess::ReadMessages() {
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    Result<std::optional<ipc::Frame>> message =
        ipc::ReceiveChannelMessage(channel_.native_handle(), ipc::ChannelToBrokerRules);
    if (!message.ok()) {
      // kDisconnected: the worker has closed the channel and is about to exit. All other errors are
      // protocol violations.
      if (message.status().code() != StatusCode::kDisconnected) Kill();
      return false;
    }
    if (!message->has_value()) return true;
    events_.message(std::move(**message));
  }
  return true;
}

void WorkerProcess::WaitForExit() {
  pidfd_.async_wait(descriptor_base::wait_read,
                    [weak = weak_from_this()](const boost::system::error_code& error) {
                      const auto self = weak.lock();
                      if (self && !error) self->LearnExit();
                    });
}

void WorkerProcess::Reap(ipc::UniqueFd ended) {
  siginfo_t info{};
  (void)::waitid(P_PIDFD, static_cast<id_t>(ended.get()), &info, WEXITED);
}

void WorkerProcess::LearnExit() {
  siginfo_t info{};
  const auto pidfd = static_cast<id_t>(pidfd_.native_handle());
  const int looked = ::waitid(P_PIDFD, pidfd, &info, WEXITED | WNOHANG | WNOWAIT);
  const bool is_child = looked == 0 || errno != ECHILD;
  if (is_child && (looked != 0 || info.si_pid == 0)) {
    WaitForExit();
    return;
  }
  // Messages sent before the worker died are still processed, because they report which sessions
  // ended, and why.
  while (channel_open_) {
    Result<std::optional<ipc::Frame>> message =
        ipc::ReceiveChannelMessage(channel_.native_handle(), ipc::ChannelToBrokerRules);
    channel_open_ = message.ok() && message->has_value();
    if (channel_open_) events_.message(std::move(**message));
  }
  boost::system::error_code ignored;
  channel_.close(ignored);
  ended_ = ipc::UniqueFd(pidfd_.release());
  events_.exited(is_child
                     ? DescribeExit(info, killed_)
                     : "exited, with a status that only the broker that started it could read");
}

void WorkerProcess::Flush() {
  if (flush_waits_ || !channel_open_) return;
  const Result<bool> sent = outbox_.Flush(channel_.native_handle());
  if (!sent.ok() || *sent) return;  // If the worker is gone, `exited` is called later.
  flush_waits_ = true;
  channel_.async_wait(descriptor_base::wait_write,
                      [weak = weak_from_this()](const boost::system::error_code& error) {
                        const auto self = weak.lock();
                        if (!self || error) return;
                        self->flush_waits_ = false;
                        self->Flush();
                      });
}

void WorkerProcess::Kill() {
  killed_ = true;
  if (pidfd_.is_open())
    ::syscall(SYS_pidfd_send_signal, pidfd_.native_handle(), SIGKILL, nullptr, 0);
}

}  // namespace gpushared::server
