// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_TRACE_REQUEST_HANDLER_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_TRACE_REQUEST_HANDLER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/unbounded_calls.h"
#include "ipc/unique_fd.h"
#include "ipc/wire/channel.h"
#include "server/telemetry/trace/writer.h"
#include "server/worker/control/home_executor.h"
#include "server/worker/control/slow_calls.h"
#include "server/worker/output/mailbox.h"
#include "server/worker/output/messages.h"

namespace gpushared::server {

// Connections that watch the work on the device. The trace and its memory exist only while at least
// one watcher is connected.
//
// Confined to the control thread.
class TraceRequestHandler {
 public:
  // Maximum number of watchers. Half of the places are reserved for operators.
  static constexpr std::size_t kWatchersMax = 16;

  struct Surroundings {
    boost::asio::io_context& context;
    SlowCalls& slow_calls;
    Mailbox<DeviceMessage>& device_thread;
    const HomeExecutor& home;
    // Closes descriptors that other processes may share; a close may block.
    ipc::UnboundedCalls& endings;
    std::uint32_t generation = 0;
  };
  explicit TraceRequestHandler(const Surroundings& around) : around_(around) {}
  ~TraceRequestHandler();
  TraceRequestHandler(const TraceRequestHandler&) = delete;
  TraceRequestHandler& operator=(const TraceRequestHandler&) = delete;

  // Replies on the connection.
  void Add(const ipc::Watch& watch, ipc::UniqueFd connection);
  // Frees a writer that the device thread has returned.
  void Free(std::unique_ptr<trace::Writer> writer) const;

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;
  struct Watcher {
    Descriptor connection;
    std::uint32_t request = 0;
  };

  void Make();
  void OnMade(Result<std::unique_ptr<trace::Writer>> writer);
  void Answer(std::uint64_t number);
  void AwaitEnd(std::uint64_t number);
  void Remove(std::uint64_t number);
  void Close(Watcher& watcher) const;
  void RejectAll(const Status& why);

  const Surroundings around_;
  std::map<std::uint64_t, Watcher> watchers_;
  std::uint64_t last_number_ = 0;
  ipc::UniqueFd memory_;  // Memory of the current trace; invalid if there is none.
  bool is_making_ = false;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_TRACE_REQUEST_HANDLER_H_
