// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CTL_TRACE_JSON_TRACE_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TRACE_JSON_TRACE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "scheduler/types.h"

namespace gpushared::server {

// A named argument of a slice; printable UTF-8.
struct Argument {
  std::string_view name;
  std::variant<std::uint64_t, double, std::string_view> value;
};

struct TimeSpan {
  scheduler::TimePoint begin{};
  scheduler::TimePoint end{};
};

// Connects slices. A request's slice starts a flow, and viewers draw an arrow from that slice to
// each further slice of the flow. The slice that starts a flow must begin first. An id of 0 means
// no flow.
struct Flow {
  std::uint64_t id = 0;
  bool is_start = false;
};

// Writer of Chrome's JSON trace format ("Trace Event Format"), which ui.perfetto.dev and
// chrome://tracing open. Viewers show processes as groups, in the order of their `rank`, each with
// its threads and counters. Names must be printable UTF-8.
//
// Slices of a thread must not overlap. Events may be added in any order.
//
// Thread-compatible.
class JsonTrace {
 public:
  struct Process {
    std::uint64_t id = 0;
  };
  struct Thread {
    std::uint64_t process = 0, id = 0;
  };

  JsonTrace();

  Process AddProcess(std::string_view name, std::uint64_t rank);
  Thread AddThread(Process process, std::string_view name, std::uint64_t rank);
  void AddEvent(Thread thread, const TimeSpan& when, std::string_view name, Flow flow,
                std::span<const Argument> arguments);
  void AddInstant(Thread thread, scheduler::TimePoint at, std::string_view name);
  // Adds a value of the process's counter `name`, in commands.
  void AddCount(Process process, scheduler::TimePoint at, std::string_view name,
                std::uint64_t value);
  // Completes the text returned by the next Take.
  void Finish() { text_ += "\n]}\n"; }

  // Returns the text written since the last call.
  std::string Take() { return std::exchange(text_, {}); }
  std::size_t pending_bytes() const { return text_.size(); }

 private:
  void Name(Thread thread, std::string_view kind, std::string_view name, std::uint64_t rank);
  void Begin(char phase, Thread thread, std::string_view name);
  void PutText(std::string_view text);
  void PutTime(std::string_view key, scheduler::Duration time);

  std::string text_;
  std::uint64_t last_id_ = 0;
  bool is_first_ = true;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TRACE_JSON_TRACE_H_
