// SPDX-License-Identifier: Apache-2.0
#include "server/worker/dispatch/kernel_limiter.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <variant>

#include "gpushared/check.h"

#include "scheduler/class_name.h"
#include "server/device/shown_name.h"

namespace gpushared::server {

namespace {

std::string Seconds(scheduler::Duration time) {
  return fmt::format("{:.3g} s", std::chrono::duration<double>(time).count());
}

// Returns, for example, "kernel 'scale'" or "graph 3".
std::string ShownWork(const CommandSlot& command) {
  if (command.kind == CommandKind::kGraph) return fmt::format("graph {}", command.graph->number());
  const auto& launch = std::get<device::LaunchWork>(command.work);
  return fmt::format("kernel '{}'",
                     device::ShownName(launch.module->kernels()[launch.kernel].name));
}

}  // namespace

KernelLimiter::KernelLimiter(device::Device& device, const ClientRegistry& registry,
                             const KernelLimiterOptions& options)
    : device_(device),
      registry_(registry),
      options_(options),
      has_limits_(std::ranges::any_of(options.limits,
                                      [](const auto& limit) { return limit.has_value(); })) {}

void KernelLimiter::OnSubmitted(const ClientState& client, const CommandSlot& command,
                                std::uint8_t priority, scheduler::TimePoint now) {
  if (!has_limits_) return;
  const auto of_class = static_cast<std::size_t>(client.spec().scheduling_class);
  std::optional<scheduler::Duration> limit = options_.limits.at(of_class);
  // A graph may take the predicted time of all its nodes plus the limit of one.
  if (limit && command.kind == CommandKind::kGraph) *limit += command.predicted();
  if (command.kind != CommandKind::kLaunch && command.kind != CommandKind::kGraph) limit.reset();
  watch_.OnSubmitted(command.name(), priority, command.ran, limit, now);
}

void KernelLimiter::OnLeft(const ClientState& client, CommandSlot& command,
                           scheduler::TimePoint now) {
  if (command.submission().stop_asked) RecordSlowStop(client, command, now);
  if (!has_limits_) return;
  command.ran = watch_.OnCompleted(command.name(), now);
  std::erase_if(pending_ends_,
                [&](const PendingEnd& pending) { return pending.id == command.name(); });
}

std::optional<device::DeviceLoss> KernelLimiter::Enforce(scheduler::TimePoint now) {
  if (!has_limits_) return std::nullopt;
  if (!pending_ends_.empty() && now >= pending_ends_.front().until) {
    return EndWithDevice(
        pending_ends_.front().id,
        fmt::format("{}, and it has not ended within {} of the request",
                    pending_ends_.front().message, Seconds(options_.leaves_within)));
  }
  while (const std::optional<KernelWatch::Overdue> overdue = watch_.TakeOverdue(now)) {
    if (auto loss = End(*overdue, now)) return loss;
  }
  return std::nullopt;
}

std::optional<scheduler::TimePoint> KernelLimiter::wake_at() const {
  const std::optional<scheduler::TimePoint> at = watch_.wake_at();
  return pending_ends_.empty() ? at : scheduler::Earlier(at, pending_ends_.front().until);
}

std::optional<device::DeviceLoss> KernelLimiter::End(const KernelWatch::Overdue& overdue,
                                                     scheduler::TimePoint now) {
  ClientState* const client = registry_.OnDevice(overdue.id);
  Check(client != nullptr, "a watched kernel is on the device");
  CommandSlot& command = client->streams.slab()[WorkName::Slot(overdue.id)];
  const scheduler::SchedulingClass of_class = client->spec().scheduling_class;
  const std::string may_run =
      fmt::format("has run {}, kernels of class {} may run {} (--kernel-limit of the server)",
                  Seconds(overdue.ran), scheduler::ClassName(of_class), Seconds(overdue.limit));
  const std::string message = fmt::format("{} ended by force: it {}", ShownWork(command), may_run);
  const auto* const launch = std::get_if<device::LaunchWork>(&command.work);
  if (launch != nullptr ? !device_.CanKill(*launch) : !device_.info().can_kill) {
    if (options_.ends_device.at(static_cast<std::size_t>(of_class))) {
      return EndWithDevice(overdue.id, message + ", and this device cannot end one kernel alone");
    }
    Note(*client, command, command.cost_kernel,
         may_run +
             "; it continues: this device cannot terminate a single kernel, and no kernel_limit "
             "was given");
    return std::nullopt;
  }
  command.failure = std::make_unique<CommandFailure>(StatusCode::kKernelFault, message,
                                                     FaultKind::kLaunchTimeout);
  ++ended_.count;
  ended_.latest = fmt::format("{} {}", message, client->Who(command.stream, command.sequence));
  if (!device_.info().can_kill) {
    pending_ends_.push_back(
        {.id = overdue.id, .until = now + options_.leaves_within, .message = message});
  }
  device_.RequestKill(overdue.id);
  return std::nullopt;
}

device::DeviceLoss KernelLimiter::EndWithDevice(device::WorkId id, const std::string& why) const {
  const ClientState* const client = registry_.OnDevice(id);
  Check(client != nullptr, "the kernel to be ended is on the device");
  const std::string work = ShownWork(client->streams.slab()[WorkName::Slot(id)]);
  return {.why = Status(StatusCode::kDeviceLost, why), .suspects = {{.id = id, .what = work}}};
}

void KernelLimiter::Note(const ClientState& client, const CommandSlot& command, std::uint64_t key,
                         const std::string& what) {
  if (kernels_noted_.size() >= kKernelsNotedMax) return;
  if (!kernels_noted_.insert(key).second) return;
  noted_.push_back({.session = client.setup.session,
                    .text = fmt::format("{} {} {}", ShownWork(command), what,
                                        client.Who(command.stream, command.sequence))});
}

void KernelLimiter::RecordSlowStop(const ClientState& client, const CommandSlot& command,
                                   scheduler::TimePoint now) {
  const scheduler::Duration took = now - *command.submission().stop_asked;
  if (took < kSlowStop || command.kind != CommandKind::kLaunch) return;
  Note(client, command, command.cost_kernel,
       fmt::format("held the device for {} after others asked for it: {}", Seconds(took),
                   "its running thread block was not preempted"));
}

}  // namespace gpushared::server
