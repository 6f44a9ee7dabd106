// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_WORKER_PROCESS_H_
#define GPUSHARED_SERVER_BROKER_WORKER_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/registry_socket.h"
#include "ipc/unique_fd.h"
#include "ipc/unix_socket.h"

namespace gpushared::server {

// The descriptor at which a worker finds its channel; the first after stdin, stdout and stderr.
inline constexpr int kWorkerChannelFd = 3;

// One child process that owns a device, and the channel to it.
//
// The child inherits stdout, stderr and its channel, nothing else. It is not tied to the
// broker's life: when the broker dies, it serves its sessions on, and the next broker adopts it.
// It has a process group of its own, so that a Ctrl-C meant for the broker does not end it.
//
// Confined to the broker's thread. Destroying the object closes the channel and forgets the
// child; it does not kill it.
class WorkerProcess : public std::enable_shared_from_this<WorkerProcess> {
 public:
  struct Launch {
    std::string program;
    std::vector<std::string> arguments;  // Without the program's name.
    // NAME=VALUE: in the worker's environment instead of what the broker has by that name.
    std::vector<std::string> environment = {};
    std::uint64_t made_by = 0;  // See ipc::Registry.
  };
  // Neither is called from inside Start. `message` gets frames that ChannelToBrokerRules allows;
  // their payloads are not decoded yet. `exited` comes once, as the last call, with a phrase such
  // as "was killed by signal 9 (Killed)".
  struct Events {
    std::function<void(ipc::Frame frame)> message;
    std::function<void(const std::string& how)> exited;
  };
  static Result<std::shared_ptr<WorkerProcess>> Start(boost::asio::io_context& context,
                                                      const Launch& launch, Events events);
  // One that an earlier broker started. How it ends is not known where that one has died.
  static std::shared_ptr<WorkerProcess> Adopt(boost::asio::io_context& context,
                                              ipc::FoundWorker found, Events events);
  ~WorkerProcess() = default;
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Everything that was sent is on its way.
  bool is_flushed() const { return outbox_.empty(); }
  // False from when its channel closed or it was killed; `exited` follows.
  bool usable() const { return channel_open_ && !killed_; }

  // Queues a message; never blocks. An error means that the worker does not read its channel.
  template <typename T>
  Status Send(std::uint32_t request, const T& message, std::vector<ipc::UniqueFd> fds = {}) {
    if (Status status = outbox_.Add(request, message, std::move(fds)); !status.ok()) return status;
    Flush();
    return Status::Ok();
  }

  // Hands over the messages that have arrived, without waiting for their turn.
  void TakeMessages();

  // SIGKILL.
  void Kill();

  // Gives back the number of a process that has ended. Not for the broker's thread: the kernel
  // keeps its core busy there until nobody looks at the process in /proc. A user may let that take
  // long. TakeEnded is empty before `exited`.
  static void Reap(ipc::UniqueFd ended);
  ipc::UniqueFd TakeEnded() { return std::move(ended_); }

 private:
  WorkerProcess(boost::asio::io_context& context, pid_t pid, ipc::UniqueFd channel,
                ipc::UniqueFd pidfd, Events events);
  void WaitForMessage();
  void WaitForExit();
  // False when the channel is closed or broken.
  bool ReadMessages();
  void Flush();
  void LearnExit();

  pid_t pid_;
  Events events_;
  ipc::Outbox outbox_{ipc::Outbox::Kind::kSeqpacket};
  bool flush_waits_ = false;
  bool channel_open_ = true;
  bool killed_ = false;
  boost::asio::posix::stream_descriptor channel_;
  boost::asio::posix::stream_descriptor pidfd_;
  ipc::UniqueFd ended_;  // Its pidfd, once it has ended.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_WORKER_PROCESS_H_
