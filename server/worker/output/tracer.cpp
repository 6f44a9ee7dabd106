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

// Only for device work, whose kinds have the same values in both enumerations.
trace::Work GetWork(CommandKind kind) { return static_cast<trace::Work>(kind); }
constexpr bool IsSame(CommandKind kind, trace::Work work) {
  return static_cast<int>(kind) == static_cast<int>(work);
}
static_assert(IsSame(CommandKind::kLaunch, trace::Work::kLaunch) &&
              IsSame(CommandKind::kCopyToDevice, trace::Work::kCopyToDevice) &&
              IsSame(CommandKind::kCopyToHost, trace::Work::kCopyToHost) &&
              IsSame(CommandKind::kCopyOnDevice, trace::Work::kCopyOnDevice) &&
              IsSame(CommandKind::kFill, trace::Work::kFill) &&
              IsSame(CommandKind::kGraph, trace::Work::kGraph));
static_assert(kCommandsTakenLimit <= trace::HeadBits::kDepthMax);

TimePoint DeviceTime(device::DeviceClock::time_point at) {
  return TimePoint(std::chrono::nanoseconds(at.time_since_epoch()));
}

trace::Depths GetDepths(const ClientState& client) {
  return {.queued = client.load.queued(), .on_device = client.load.on_device()};
}

// The upper bits of the cost key, which is a hash of everything that determines a launch's cost. 0
// for work other than launches.
std::uint16_t GetShape(const CommandSlot& command) {
  return static_cast<std::uint16_t>(command.cost_key >> (64 - trace::kShapeBits));
}

// Time at which the command entered the queue: when it was taken, or when its last execution ended.
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
  told_[client] = {};
  writer_->NameClient(client.setup.session, client.setup.pid, client.setup.name);
}

std::uint64_t Tracer::GetNodes(const ClientState& client, const Stay& stay) {
  if (stay.kind != CommandKind::kLaunch && stay.kind != CommandKind::kGraph) return 0;
  const std::uint64_t key =
      trace::GraphKey(stay.session, stay.graph_serial, stay.first_node, stay.end_node);
  if (writer_->KnowsKernel(key)) [[likely]]
    return key;
  std::string name =
      fmt::format("graph {} nodes {} to {}", stay.graph, stay.first_node, stay.end_node - 1);
  if (stay.kind == CommandKind::kLaunch) {
    const ModuleEntry& entry = client.scope.module(stay.module);
    if (entry.module == nullptr || entry.serial != stay.module_serial) return key;
    name = fmt::format("graph {} node {}: {}", stay.graph, stay.first_node,
                       entry.module->kernels()[stay.kernel].name);
  }
  writer_->NameKernel(key, name);
  return key;
}

void Tracer::NameKernel(const ClientState& client, const Stay& stay, std::uint64_t key) {
  const ModuleEntry& entry = client.scope.module(stay.module);
  if (entry.module != nullptr && entry.serial == stay.module_serial) {
    writer_->NameKernel(key, entry.module->kernels()[stay.kernel].name);
  }
}

void Tracer::OnLeft(const ClientState& client, const CommandSlot& command,
                    const device::Completion& completion, const Stay& stay, std::uint64_t request,
                    scheduler::Duration uncharged) {
  const trace::Depths left = GetDepths(client);
  told_[client] = left;
  const std::uint64_t kernel = KernelFor(client, stay);
  const auto departure = [&] {
    return trace::Departure{.session = stay.session,
                            .kernel = kernel,
                            .request = request,
                            .shape = GetShape(command),
                            .work = GetWork(stay.kind),
                            .cut = stay.cut,
                            .of_class = client.spec().scheduling_class,
                            .stream = command.stream,
                            .is_part = stay.was_stopped,
                            .has_failed = !completion.status.ok(),
                            .queued = QueuedSince(command),
                            .submitted = stay.submitted,
                            .started = stay.started,
                            .ended = DeviceTime(completion.ended),
                            .left_at = stay.ended,
                            .stop_asked = stay.stop_asked,
                            .charged = stay.charged,
                            .uncharged = uncharged,
                            .left = left};
  };
  writer_->WriteMade(departure);
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
    if (std::exchange(told_[*client], depths) == depths) continue;
    writer_->Write(trace::Depth{.session = client->setup.session,
                                .of_class = client->spec().scheduling_class,
                                .at = now,
                                .depths = depths});
  }
}

}  // namespace gpushared::server
