// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_OUTPUT_TRACER_H_
#define GPUSHARED_SERVER_WORKER_OUTPUT_TRACER_H_

#include <chrono>
#include <cstdint>
#include <memory>

#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/telemetry/trace/execution_record.h"
#include "server/telemetry/trace/writer.h"
#include "server/worker/output/open_requests.h"
#include "server/worker/state/client_registry.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/per_client.h"

namespace gpushared::server {

// Writes execution events to the trace while at least one watcher is connected.
//
// Confined to the device thread.
class Tracer {
 public:
  // `registry` must outlive this.
  explicit Tracer(const ClientRegistry& registry) : registry_(registry) {}

  bool is_on() const { return writer_ != nullptr; }
  // Directs events to `writer`; null turns the trace off. Returns the previous writer, if any.
  std::unique_ptr<trace::Writer> Replace(std::unique_ptr<trace::Writer> writer,
                                         scheduler::TimePoint now);

  // Must be called before any of the client's commands leave the device, even while the trace is
  // off.
  void OnClientAdded(const ClientState& client) {
    reported_.Begin(client);
    if (is_on()) Name(client);
  }
  // The next two functions may be called only while the trace is on. OnLeft reports a command that
  // has left the device, before it is measured. `request`: number of the open request to which it
  // belongs; 0 if none. `uncharged`: device time not yet charged to the commands on the device
  // (DeviceLane).
  void OnLeft(const ClientState& client, const CommandSlot& command,
              const device::Completion& completion, const trace::ExecutionRecord& record,
              std::uint64_t request, scheduler::Duration uncharged);
  void OnRequestEnded(const ClientState& client, const OpenRequest& request, bool has_failed,
                      scheduler::TimePoint now);
  // Called at the end of a loop iteration that found work.
  void OnTurn(scheduler::TimePoint now) {
    if (is_on() && now >= depths_due_) [[unlikely]]
      WriteDepths(now);
  }

 private:
  // Interval at which queue depths are written, so that queues of clients without running commands
  // are visible.
  static constexpr scheduler::Duration kDepthsEvery = std::chrono::milliseconds(1);

  void Name(const ClientState& client);
  // Returns the kernel's key, after writing its name if the trace does not have it. 0 for work
  // without a name.
  std::uint64_t KernelFor(const ClientState& client, const trace::ExecutionRecord& record) {
    if (record.work != trace::Work::kLaunch || record.end_node != record.first_node) [[unlikely]]
      return GetNodes(client, record);
    const std::uint64_t key = trace::KernelKey(record.module_serial, record.kernel);
    if (!writer_->KnowsKernel(key)) [[unlikely]]
      NameKernel(client, record, key);
    return key;
  }
  [[gnu::noinline]] void NameKernel(const ClientState& client, const trace::ExecutionRecord& record,
                                    std::uint64_t key);
  // Does what KernelFor does, for graph nodes, turns and other work.
  [[gnu::noinline]] std::uint64_t GetNodes(const ClientState& client,
                                           const trace::ExecutionRecord& record);
  std::uint64_t GetTurn(const ClientState& client, const trace::ExecutionRecord& record);
  void WriteDepths(scheduler::TimePoint now);

  const ClientRegistry& registry_;
  std::unique_ptr<trace::Writer> writer_;
  scheduler::TimePoint depths_due_{};
  PerClient<trace::Depths> reported_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_TRACER_H_
