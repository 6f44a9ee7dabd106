// SPDX-License-Identifier: Apache-2.0
// Dispatcher: kernels that run longer than their class may.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "gpushared/check.h"

#include "scheduler/class_name.h"
#include "server/device/shown_name.h"
#include "server/worker/device_thread/dispatcher.h"

namespace gpushared::server {

namespace {

std::string Seconds(scheduler::Duration time) {
  return fmt::format("{:.3g} s", std::chrono::duration<double>(time).count());
}

}  // namespace

void Dispatcher::Watch(const ClientState& client, const CommandSlot& command, std::uint8_t priority,
                       scheduler::TimePoint now) {
  const auto of_class = static_cast<std::size_t>(client.spec.scheduling_class);
  const std::optional<scheduler::Duration> limit =
      command.kind == CommandKind::kLaunch ? options_.kernel_limits.at(of_class) : std::nullopt;
  watch_.OnSubmitted(command.work_id, priority, command.ran, limit, now);
}

void Dispatcher::EnforceKernelLimits(scheduler::TimePoint now) {
  if (!watches() || loss_) return;
  if (!told_.empty() && now >= told_.front().until) {
    return EndWithDevice(told_.front().id,
                         fmt::format("{}, and it has not left within {} of being told to",
                                     told_.front().sentence, Seconds(options_.leaves_within)));
  }
  while (const std::optional<KernelWatch::Overdue> overdue = watch_.TakeOverdue(now)) {
    EndKernel(*overdue, now);
    if (loss_) return;
  }
}

void Dispatcher::EndKernel(const KernelWatch::Overdue& overdue, scheduler::TimePoint now) {
  ClientState* const client = ClientOf(overdue.id);
  Check(client != nullptr, "what is watched is on the device");
  CommandSlot& command = client->slab[WorkName::Slot(overdue.id)];
  const auto& launch = std::get<device::LaunchWork>(command.work);
  const std::string sentence = fmt::format(
      "kernel '{}' ended by force: it has run {}, kernels of class {} may run {}",
      device::ShownName(launch.module->kernels()[launch.kernel].name), Seconds(overdue.ran),
      scheduler::ClassName(client->spec.scheduling_class), Seconds(overdue.limit));
  if (!device_.CanKill(launch)) {
    if (!options_.limit_ends_device.at(static_cast<std::size_t>(client->spec.scheduling_class))) {
      return NoteKernel(
          *client, command,
          fmt::format("has run {}, kernels of class {} may run {}; it goes on: this "
                      "device cannot end one kernel alone, and no kernel_limit was "
                      "given",
                      Seconds(overdue.ran), scheduler::ClassName(client->spec.scheduling_class),
                      Seconds(overdue.limit)));
    }
    return EndWithDevice(overdue.id, sentence + ", and this device cannot end one kernel alone");
  }
  command.failure = std::make_unique<CommandFailure>(StatusCode::kLimitExceeded, sentence);
  ++kernels_ended_.count;
  kernels_ended_.latest =
      fmt::format("{} {}", sentence, client->Who(command.stream, command.sequence));
  if (!device_.info().can_kill) {
    told_.push_back(
        {.id = overdue.id, .until = now + options_.leaves_within, .sentence = sentence});
  }
  device_.RequestKill(overdue.id);
}

void Dispatcher::NoteKernel(const ClientState& client, const CommandSlot& command,
                            const std::string& what) {
  if (kernels_noted_.size() >= kKernelsNotedMax) return;
  if (!kernels_noted_.insert(command.cost_kernel).second) return;
  const auto& launch = std::get<device::LaunchWork>(command.work);
  noted_.push_back(
      {.session = client.setup.session,
       .text = fmt::format("kernel '{}' {} {}", launch.module->kernels()[launch.kernel].name, what,
                           client.Who(command.stream, command.sequence))});
}

void Dispatcher::NoteSlowStop(const ClientState& client, const CommandSlot& command,
                              scheduler::TimePoint now) {
  const scheduler::Duration took = now - *command.stop_asked;
  if (took < kSlowStop || command.kind != CommandKind::kLaunch) return;
  NoteKernel(client, command,
             fmt::format("held the device for {} after others asked for it: it can be stopped "
                         "between two of its blocks only",
                         Seconds(took)));
}

void Dispatcher::EndWithDevice(device::WorkId id, const std::string& why) {
  const ClientState* const client = ClientOf(id);
  Check(client != nullptr, "what is ended is on the device");
  const auto& launch = std::get<device::LaunchWork>(client->slab[WorkName::Slot(id)].work);
  const std::string kernel = device::ShownName(launch.module->kernels()[launch.kernel].name);
  DescribeLoss({.why = Status(StatusCode::kDeviceLost, why),
                .suspects = {{.id = id, .what = fmt::format("kernel '{}'", kernel)}}});
}

}  // namespace gpushared::server
