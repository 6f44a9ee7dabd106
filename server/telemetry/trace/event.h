// SPDX-License-Identifier: Apache-2.0
// Events of an execution trace. event_words.h encodes them, and Reader decodes them.

#ifndef GPUSHARED_SERVER_TELEMETRY_TRACE_EVENT_H_
#define GPUSHARED_SERVER_TELEMETRY_TRACE_EVENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "scheduler/types.h"
#include "server/telemetry/trace/execution_record.h"

namespace gpushared::trace {

inline constexpr unsigned kShapeBits = 12;

// Number of commands of a client in the lane and on the device.
struct Depths {
  std::uint32_t queued = 0;
  std::uint32_t on_device = 0;
  bool operator==(const Depths&) const = default;
};

// One execution of a command on the device, as decoded by a Reader from its ExecutionRecord and its
// Departure.
struct Slice {
  std::uint64_t session = 0;
  std::uint64_t kernel = 0;  // See KernelKey, GraphKey, TurnKey; 0 for other work.
  // Lower 32 bits of the number of the client's request; 0 if no request is open.
  std::uint32_t request = 0;
  // Hash of kShapeBits. Launches of one kernel with the same grid, block and shared memory have the
  // same value; collisions are rare.
  std::uint16_t shape = 0;
  Work work = Work::kLaunch;
  Cut cut = Cut::kNotAsked;
  scheduler::SchedulingClass of_class = scheduler::SchedulingClass::kNormal;
  std::uint8_t stream = 0;
  bool is_part = false;  // The command left the device unfinished.
  bool has_failed = false;
  scheduler::Duration waited{};  // Time in the queue since the command was taken or preempted.
  scheduler::TimePoint submitted{};
  // Start of the command's first unit of work and end of its last one, according to the device. Not
  // before `submitted`.
  scheduler::TimePoint started{};
  scheduler::TimePoint ended{};
  // Valid with Cut::kStopped.
  scheduler::TimePoint stop_asked{};
  // Device time charged to the client. The intervals of all slices never overlap and add up to the
  // clients' device time. If the command ran concurrently with other work, the interval does not
  // show when it ran.
  scheduler::TimePoint charged_from{};
  scheduler::Duration charged{};
  Depths left;  // Depths of the client after the command left.
};

// A completed request.
struct Request {
  std::uint64_t session = 0;
  std::uint64_t number = 0;  // Counts the requests of its client from 1.
  scheduler::SchedulingClass of_class = scheduler::SchedulingClass::kNormal;
  // Display row. Concurrent requests of a client have different rows, starting at 0.
  std::uint8_t row = 0;
  std::optional<std::uint8_t> stream;  // Unset for requests that the client did not mark.
  bool has_failed = false;
  // As reported by the client; equal to `begun` if the client did not mark the request.
  scheduler::TimePoint arrived{};
  scheduler::TimePoint begun{};
  scheduler::TimePoint ended{};
  scheduler::Duration target{};  // Zero: no latency target.

  bool is_target_met() const { return !has_failed && ended - arrived <= target; }
};

// Queue depth of a client at one moment; sampled when it has changed.
struct Depth {
  std::uint64_t session = 0;
  scheduler::SchedulingClass of_class = scheduler::SchedulingClass::kNormal;
  scheduler::TimePoint at{};
  Depths depths;
};

using Event = std::variant<Slice, Request, Depth>;

// Name of a session or of a kernel key.
struct Name {
  enum class Of : std::uint8_t { kClient, kKernel };
  Of of = Of::kClient;
  std::uint64_t key = 0;  // Session id, or a key of what a slice launched.
  std::int32_t pid = 0;   // Clients only.
  std::string text;       // At most kNameBytesMax bytes of UTF-8 without control characters.
};

// `module_serial` numbers all modules of a worker from 1.
constexpr std::uint64_t KernelKey(std::uint64_t module_serial, std::uint32_t kernel) {
  return module_serial << 20 | kernel;
}

// Key of the graph nodes [first, end) that run as one slice. `graph` changes whenever the session's
// graph is replaced.
constexpr std::uint64_t GraphKey(std::uint64_t session, std::uint64_t graph, std::uint32_t first,
                                 std::uint32_t end) {
  std::uint64_t key = session;
  for (const std::uint64_t part : {graph, std::uint64_t{first} << 32 | end}) {
    key = (key ^ part) * 0xff51afd7ed558ccdu;
    key ^= key >> 33;
  }
  return key | std::uint64_t{1} << 63;
}

// Key of a turn of a gated client with this number of launches. The name of its longest launch is
// recorded under the key with `launches` = 0.
constexpr std::uint64_t TurnKey(std::string_view longest, std::uint32_t launches) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a.
  for (const char c : longest) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash << 32 | std::uint64_t{1} << 63 | launches;
}

// Returns for example "copy to device"; "kernel" for launches, "graph" for several nodes of a
// graph.
std::string_view WorkText(Work work);

// Explains why work was or was not preempted, in three forms: for a table column (non-preemptible
// work only, otherwise empty), next to a slice, and in a sentence that begins with "it ".
struct CutText {
  std::string_view in_column, in_slice, in_message;
};
CutText GetText(Cut cut);

}  // namespace gpushared::trace

#endif  // GPUSHARED_SERVER_TELEMETRY_TRACE_EVENT_H_
