// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TELEMETRY_TRACE_EXECUTION_RECORD_H_
#define GPUSHARED_SERVER_TELEMETRY_TRACE_EXECUTION_RECORD_H_

#include <cstdint>

#include "scheduler/types.h"

namespace gpushared::trace {

enum class Work : std::uint8_t {
  kLaunch,
  kCopyToDevice,
  kCopyToHost,
  kCopyOnDevice,
  kFill,
  kGraph,
  kTurn,  // Turn of a gated client; its units are launches.
};

// Why running work was or was not preempted.
enum class Cut : std::uint8_t {
  kStopped,       // Preemption was requested.
  kNotAsked,      // Preemptible, but the policy did not request it.
  kDeviceCannot,  // The device preempts only between commands.
  kTooShort,      // Predicted to be too short to be worth preempting.
  kRanAsItIs,     // This launch was not preemptible, although others of the device are.
  kHighClass,     // Work of the high class is never preempted.
  kSlowForm,      // The kernel's preemptible form was too slow.
};

// Execution record: one command on the device, from its submission until it ends or is preempted. A
// preempted command has one record per submission. The worker creates the record when the command
// has left the device. Charging, activity, explanations and traces all read this record.
//
// Value type. Must not grow, because the worker writes one for every command.
struct ExecutionRecord {
  // First and adjacent, because these fields are read when many records are searched.
  std::uint64_t session = 0;
  scheduler::TimePoint submitted{};
  // When the command's first unit began, measured by the device and clamped to the interval from
  // submission to end.
  scheduler::TimePoint started{};
  scheduler::TimePoint ended{};  // When the worker detected the end. Not before `submitted`.
  scheduler::Duration charged{};

  scheduler::Duration predicted{};
  scheduler::TimePoint stop_asked{};  // Set with Cut::kStopped.
  std::uint64_t module_serial = 0;    // Launches only, like `module`.
  std::uint64_t graph_serial = 0;     // Changes whenever the graph changes.
  std::uint32_t kernel = 0;           // Kernel of a launch, or number of launches of a turn.
  // Number of the graph, and the nodes [first_node, end_node) that the command executed; an empty
  // range if the command was not part of a graph.
  std::uint32_t graph = 0, first_node = 0, end_node = 0;
  std::uint16_t module = 0;
  Work work = Work::kLaunch;
  Cut cut = Cut::kNotAsked;
  bool was_stopped = false;  // The command left the device unfinished.
};
static_assert(sizeof(ExecutionRecord) <= 96);

}  // namespace gpushared::trace

#endif  // GPUSHARED_SERVER_TELEMETRY_TRACE_EXECUTION_RECORD_H_
