// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_STAY_H_
#define GPUSHARED_SERVER_WORKER_STATE_STAY_H_

#include <cstdint>

#include "scheduler/types.h"
#include "server/telemetry/trace/event.h"
#include "server/worker/state/command_slab.h"

namespace gpushared::server {

// Execution record: one command on the device, from its submission until it ends or is preempted. A
// preempted command has one record per submission.
struct Stay {
  // First and adjacent, because these fields are read when many records are searched.
  std::uint64_t session = 0;
  scheduler::TimePoint submitted{};
  // When its first unit began, measured by the device and clamped to the interval from submission
  // to end.
  scheduler::TimePoint started{};
  scheduler::TimePoint ended{};
  scheduler::Duration charged{};

  scheduler::Duration predicted{};
  scheduler::TimePoint stop_asked{};  // Set with Cut::kStopped.
  std::uint64_t module_serial = 0;    // Launches only; so are the next two.
  std::uint32_t kernel = 0;
  std::uint16_t module = 0;
  CommandKind kind = CommandKind::kLaunch;
  // Nodes [first_node, end_node) of that graph. An empty range if the command was not part of one.
  std::uint32_t graph = 0, first_node = 0, end_node = 0;
  std::uint64_t graph_serial = 0;  // Changes whenever the graph changes.
  trace::Cut cut = trace::Cut::kNotAsked;
  bool was_stopped = false;  // Left the device unfinished.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_STAY_H_
