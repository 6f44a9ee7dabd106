// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_OUTPUT_TRACER_H_
#define GPUSHARED_SERVER_WORKER_OUTPUT_TRACER_H_

#include <chrono>
#include <cstdint>
#include <memory>

#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/telemetry/trace/writer.h"
#include "server/worker/output/open_requests.h"
#include "server/worker/state/client_registry.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/per_client.h"
#include "server/worker/state/stay.h"

namespace gpushared::server {

// Writes what runs for those who watch; nothing while nobody does.
//
// Confined to the device thread.
class Tracer {
 public:
  // `registry` outlives it.
  explicit Tracer(const ClientRegistry& registry) : registry_(registry) {}

  bool is_on() const { return writer_ != nullptr; }
  // Writes there from now on, or nothing. Returns the writer before, if there was one.
  std::unique_ptr<trace::Writer> Replace(std::unique_ptr<trace::Writer> writer,
                                         scheduler::TimePoint now);

  // Also while it is off, before any of its commands leave the device.
  void OnClientAdded(const ClientState& client) {
    told_.Begin(client);
    if (is_on()) Name(client);
  }
  // The next two: while it is on. A command has left the device, and is not measured yet.
  // `request`: the number of the open one that it belongs to; 0: none. `uncharged`: of those that
  // are there (DeviceLane).
  void OnLeft(const ClientState& client, const CommandSlot& command,
              const device::Completion& completion, const Stay& stay, std::uint64_t request,
              scheduler::Duration uncharged);
  void OnRequestEnded(const ClientState& client, const OpenRequest& request, bool has_failed,
                      scheduler::TimePoint now);
  // A turn that did something is over.
  void OnTurn(scheduler::TimePoint now) {
    if (is_on() && now >= depths_due_) [[unlikely]]
      WriteDepths(now);
  }

 private:
  // Queues that grow while nothing of their client runs are seen this often.
  static constexpr scheduler::Duration kDepthsEvery = std::chrono::milliseconds(1);

  void Name(const ClientState& client);
  // Its key, and its name where that is not known. 0 for work that has no name of its own.
  std::uint64_t KernelFor(const ClientState& client, const Stay& stay) {
    if (stay.kind != CommandKind::kLaunch || stay.end_node != stay.first_node) [[unlikely]]
      return GetNodes(client, stay);
    const std::uint64_t key = trace::KernelKey(stay.module_serial, stay.kernel);
    if (!writer_->KnowsKernel(key)) [[unlikely]]
      NameKernel(client, stay, key);
    return key;
  }
  [[gnu::noinline]] void NameKernel(const ClientState& client, const Stay& stay, std::uint64_t key);
  // The same of nodes of a graph, and of what is no launch.
  [[gnu::noinline]] std::uint64_t GetNodes(const ClientState& client, const Stay& stay);
  void WriteDepths(scheduler::TimePoint now);

  const ClientRegistry& registry_;
  std::unique_ptr<trace::Writer> writer_;
  scheduler::TimePoint depths_due_{};
  PerClient<trace::Depths> told_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_TRACER_H_
