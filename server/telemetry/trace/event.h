// SPDX-License-Identifier: Apache-2.0
// What a trace says. event_words.h makes words of it, and a Reader what it tells.

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

// Commands of a client in the lane and on the device.
struct Depths {
  std::uint32_t queued = 0;
  std::uint32_t on_device = 0;
  bool operator==(const Depths&) const = default;
};

// One execution of a command on the device, as decoded by a Reader from its ExecutionRecord and its
// Departure.
struct Slice {
  std::uint64_t session = 0;
  std::uint64_t kernel = 0;  // See KernelKey; 0 for work that is no launch.
  // The lower 32 bits of the number of its client's request; 0: none is open.
  std::uint32_t request = 0;
  // Launches of one kernel with the same grid, block and shared memory have the same, and hardly
  // any others do: kShapeBits of a hash.
  std::uint16_t shape = 0;
  Work work = Work::kLaunch;
  Cut cut = Cut::kNotAsked;
  scheduler::SchedulingClass of_class = scheduler::SchedulingClass::kNormal;
  std::uint8_t stream = 0;
  bool is_part = false;  // Left the device unfinished.
  bool has_failed = false;
  scheduler::Duration waited{};  // In the queue: since it was taken or stopped.
  scheduler::TimePoint submitted{};
  // By the device: its first unit began, its last one ended. Not before it was submitted.
  scheduler::TimePoint started{};
  scheduler::TimePoint ended{};
  // With Cut::kStopped.
  scheduler::TimePoint stop_asked{};
  // The device time that its client is charged. These intervals of all slices never overlap, and
  // add up to the clients' device time. Beside other work they do not say when it ran.
  scheduler::TimePoint charged_from{};
  scheduler::Duration charged{};
  Depths left;  // Its client's, when it has left.
};

// A request that has ended.
struct Request {
  std::uint64_t session = 0;
  std::uint64_t number = 0;  // Counts the requests of its client from 1.
  scheduler::SchedulingClass of_class = scheduler::SchedulingClass::kNormal;
  // Requests of a client that are open at one time have different rows, from 0 up.
  std::uint8_t row = 0;
  std::optional<std::uint8_t> stream;  // Not of those that the client did not mark.
  bool has_failed = false;
  scheduler::TimePoint arrived{};  // By the client's word.
  scheduler::TimePoint begun{};
  scheduler::TimePoint ended{};
  scheduler::Duration target{};  // Zero: none.

  bool is_target_met() const { return !has_failed && ended - arrived <= target; }
};

// What a client had at one moment; written when it has changed, now and then.
struct Depth {
  std::uint64_t session = 0;
  scheduler::SchedulingClass of_class = scheduler::SchedulingClass::kNormal;
  scheduler::TimePoint at{};
  Depths depths;
};

using Event = std::variant<Slice, Request, Depth>;

// Who a session is, or which kernel a key means.
struct Name {
  enum class Of : std::uint8_t { kClient, kKernel };
  Of of = Of::kClient;
  std::uint64_t key = 0;  // The session, or a KernelKey.
  std::int32_t pid = 0;   // Clients only.
  std::string text;       // At most kNameBytesMax bytes of UTF-8 without control characters.
};

// `module_serial`: counts all modules of a worker from 1.
constexpr std::uint64_t KernelKey(std::uint64_t module_serial, std::uint32_t kernel) {
  return module_serial << 20 | kernel;
}

// The key of nodes [first, end) of a graph, which are in one slice. `graph` has another number
// whenever the graph of that session is another one.
constexpr std::uint64_t GraphKey(std::uint64_t session, std::uint64_t graph, std::uint32_t first,
                                 std::uint32_t end) {
  std::uint64_t key = session;
  for (const std::uint64_t part : {graph, std::uint64_t{first} << 32 | end}) {
    key = (key ^ part) * 0xff51afd7ed558ccdu;
    key ^= key >> 33;
  }
  return key | std::uint64_t{1} << 63;
}

// "copy to device"; "kernel" for launches, "graph" for several nodes of one.
std::string_view WorkText(Work work);

// Why work was stopped, or was not: for a column of a table (empty where nothing was
// nonpreemptible), beside a slice, and behind "it ".
struct CutText {
  std::string_view in_column, in_slice, in_sentence;
};
CutText GetText(Cut cut);

}  // namespace gpushared::trace

#endif  // GPUSHARED_SERVER_TELEMETRY_TRACE_EVENT_H_
