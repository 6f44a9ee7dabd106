// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_STAY_H_
#define GPUSHARED_SERVER_WORKER_STATE_STAY_H_

#include <cstdint>

#include "scheduler/types.h"
#include "server/telemetry/trace/event.h"
#include "server/worker/state/command_slab.h"

namespace gpushared::server {

// A command on the device, from its submission to its end or stop. A stopped command makes one
// per submission.
struct Stay {
  // First, and beside each other: what is looked at in many stays.
  std::uint64_t session = 0;
  scheduler::TimePoint submitted{};
  scheduler::TimePoint started{};  // By the device: its first unit began. Within the others.
  scheduler::TimePoint ended{};
  scheduler::Duration charged{};

  scheduler::Duration predicted{};
  scheduler::TimePoint stop_asked{};  // With Cut::kStopped.
  std::uint64_t module_serial = 0;    // Launches only; so are the next two.
  std::uint32_t kernel = 0;
  std::uint16_t module = 0;
  CommandKind kind = CommandKind::kLaunch;
  // Nodes [first_node, end_node) of that graph. No nodes: it was of none.
  std::uint32_t graph = 0, first_node = 0, end_node = 0;
  std::uint64_t graph_serial = 0;  // Another one when the graph has changed.
  trace::Cut cut = trace::Cut::kNotAsked;
  bool was_stopped = false;  // Left the device unfinished.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_STAY_H_
