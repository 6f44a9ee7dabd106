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

// Descriptor of a worker's channel; the first one after stdin, stdout and stderr.
inline constexpr int kWorkerChannelFd = 3;

// A child process that owns a device, and the channel to it.
//
// The child inherits stdout, stderr and its channel, nothing else. It may outlive the broker: if
// the broker dies, the worker continues to serve its sessions until the next broker adopts it. It
// has a separate process group so that a Ctrl-C meant for the broker does not end it.
//
// Confined to the broker's thread. The destructor closes the channel and detaches from the child,
// but does not kill it.
class WorkerProcess : public std::enable_shared_from_this<WorkerProcess> {
 public:
  struct Launch {
    std::string program;
    std::vector<std::string> arguments;  // Without the name of the program.
    // NAME=VALUE pairs that override the broker's environment.
    std::vector<std::string> environment = {};
    std::uint64_t made_by = 0;  // See ipc::Registry.
  };
  // Functions that are called later than Start. `message` receives frames permitted by
  // ChannelToBrokerRules with undecoded payloads. `exited` is called once and last, with a phrase
  // such as "was killed by signal 9 (Killed)".
  struct Events {
    std::function<void(ipc::Frame frame)> message;
    std::function<void(const std::string& how)> exited;
  };
  static Result<std::shared_ptr<WorkerProcess>> Start(boost::asio::io_context& context,
                                                      const Launch& launch, Events events);
  // Adopts a worker of an earlier broker. Its exit status is unknown if that broker has died,
  // because the worker is not a child of this process.
  static std::shared_ptr<WorkerProcess> Adopt(boost::asio::io_context& context,
                                              ipc::FoundWorker found, Events events);
  ~WorkerProcess() = default;
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Returns true if every message has been sent.
  bool is_flushed() const { return outbox_.empty(); }
  // False once the channel has closed or the worker was killed; `exited` follows.
  bool usable() const { return channel_open_ && !killed_; }

  // Queues a message without blocking. An error means that the worker does not read its channel.
  template <typename T>
  Status Send(std::uint32_t request, const T& message, std::vector<ipc::UniqueFd> fds = {}) {
    if (Status status = outbox_.Add(request, message, std::move(fds)); !status.ok()) return status;
    Flush();
    return Status::Ok();
  }

  // Delivers the messages that have arrived, without waiting for the event loop to report them.
  void TakeMessages();

  // Sends SIGKILL.
  void Kill();

  // Reaps an exited process. Must not run on the broker's thread: the kernel keeps the calling core
  // busy as long as any process inspects the exited one in /proc, which another user may do.
  // TakeEnded returns an invalid descriptor before `exited` is called.
  static void Reap(ipc::UniqueFd ended);
  ipc::UniqueFd TakeEnded() { return std::move(ended_); }

 private:
  WorkerProcess(boost::asio::io_context& context, pid_t pid, ipc::UniqueFd channel,
                ipc::UniqueFd pidfd, Events events);
  void WaitForMessage();
  void WaitForExit();
  // Returns false if the channel is closed or broken.
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
  ipc::UniqueFd ended_;  // pidfd of the exited process.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_WORKER_PROCESS_H_
