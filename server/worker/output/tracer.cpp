// SPDX-License-Identifier: Apache-2.0
#include "server/worker/output/tracer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace gpushared::server {

namespace {

using scheduler::TimePoint;

static_assert(kCommandsTakenLimit <= trace::HeadBits::kDepthMax);

trace::Depths GetDepths(const ClientState& client) {
  return {.queued = client.load.queued(), .on_device = client.load.on_device()};
}

// The upper bits of the cost key, which is a hash of everything that determines a launch's cost. 0
// for work other than launches.
std::uint16_t GetShape(const CommandSlot& command) {
  return static_cast<std::uint16_t>(command.cost_key >> (64 - trace::kShapeBits));
}

// Time at which the command entered the queue: when it was taken, or when it was last preempted.
TimePoint QueuedSince(const CommandSlot& command) {
  if (command.past() != CommandSlot::Past::kStopped || command.ended_ns == 0) [[likely]]
    return command.taken;
  return TimePoint(std::chrono::nanoseconds(static_cast<std::int64_t>(command.ended_ns)));
}

}  // namespace

std::unique_ptr<trace::Writer> Tracer::Replace(std::unique_ptr<trace::Writer> writer,
                                               TimePoint now) {
  std::swap(writer, writer_);
  if (is_on()) {
    depths_due_ = now;
    for (const ClientState* const client : registry_.present()) Name(*client);
  }
  return writer;
}

void Tracer::Name(const ClientState& client) {
  reported_[client] = {};
  writer_->NameClient(client.setup.session, client.setup.pid, client.setup.name);
}

std::uint64_t Tracer::GetTurn(const ClientState& client, const trace::ExecutionRecord& record) {
  const std::string longest = client.gate.longest() > std::chrono::nanoseconds::zero()
                                  ? client.gate.LongestName()
                                  : std::string();
  const std::uint64_t name = trace::TurnKey(longest, 0);
  if (!longest.empty() && !writer_->KnowsKernel(name)) writer_->NameKernel(name, longest);
  return trace::TurnKey(longest, record.kernel);
}

std::uint64_t Tracer::GetNodes(const ClientState& client, const trace::ExecutionRecord& record) {
  if (record.work == trace::Work::kTurn) return GetTurn(client, record);
  if (record.work != trace::Work::kLaunch && record.work != trace::Work::kGraph) return 0;
  const std::uint64_t key =
      trace::GraphKey(record.session, record.graph_serial, record.first_node, record.end_node);
  if (writer_->KnowsKernel(key)) [[likely]]
    return key;
  std::string name =
      fmt::format("graph {} nodes {} to {}", record.graph, record.first_node, record.end_node - 1);
  if (record.work == trace::Work::kLaunch) {
    const ModuleEntry& entry = client.scope.module(record.module);
    if (entry.module == nullptr || entry.serial != record.module_serial) return key;
    name = fmt::format("graph {} node {}: {}", record.graph, record.first_node,
                       entry.module->kernels()[record.kernel].name);
  }
  writer_->NameKernel(key, name);
  return key;
}

void Tracer::NameKernel(const ClientState& client, const trace::ExecutionRecord& record,
                        std::uint64_t key) {
  const ModuleEntry& entry = client.scope.module(record.module);
  if (entry.module != nullptr && entry.serial == record.module_serial) {
    writer_->NameKernel(key, entry.module->kernels()[record.kernel].name);
  }
}

void Tracer::OnLeft(const ClientState& client, const CommandSlot& command,
                    const device::Completion& completion, const trace::ExecutionRecord& record,
                    std::uint64_t request, scheduler::Duration uncharged) {
  const trace::Depths left = GetDepths(client);
  reported_[client] = left;
  const std::uint64_t kernel = KernelFor(client, record);
  writer_->Write(record, {.kernel = kernel,
                          .request = request,
                          .shape = GetShape(command),
                          .of_class = client.spec().scheduling_class,
                          .stream = command.stream,
                          .has_failed = !completion.status.ok(),
                          .queued = QueuedSince(command),
                          .ended = ToTimePoint(completion.ended),
                          .uncharged = uncharged,
                          .left = left});
}

void Tracer::OnRequestEnded(const ClientState& client, const OpenRequest& request, bool has_failed,
                            TimePoint now) {
  trace::Request ended{
      .session = client.setup.session,
      .number = request.mark.number,
      .of_class = client.spec().scheduling_class,
      .row = request.row,
      .stream = {},
      .has_failed = has_failed,
      .arrived = request.mark.arrived,
      .begun = request.begun,
      .ended = now,
      .target = client.spec().latency_target.value_or(scheduler::Duration::zero())};
  if (request.stream != OpenRequest::kAllStreams) {
    ended.stream = static_cast<std::uint8_t>(request.stream);
  }
  writer_->Write(ended);
}

void Tracer::WriteDepths(TimePoint now) {
  depths_due_ = now + kDepthsEvery;
  for (const ClientState* const client : registry_.present()) {
    const trace::Depths depths = GetDepths(*client);
    if (std::exchange(reported_[*client], depths) == depths) continue;
    writer_->Write(trace::Depth{.session = client->setup.session,
                                .of_class = client->spec().scheduling_class,
                                .at = now,
                                .depths = depths});
  }
}

}  // namespace gpushared::server
