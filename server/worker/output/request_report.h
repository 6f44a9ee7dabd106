// SPDX-License-Identifier: Apache-2.0
// Reports that explain the latency of a request.

#ifndef GPUSHARED_SERVER_WORKER_OUTPUT_REQUEST_REPORT_H_
#define GPUSHARED_SERVER_WORKER_OUTPUT_REQUEST_REPORT_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "scheduler/residency.h"
#include "scheduler/types.h"
#include "server/telemetry/trace/event.h"
#include "server/worker/output/waterfall.h"

namespace gpushared::server {

// A short text that needs no allocation; truncated if it does not fit.
class ShortText {
 public:
  ShortText& operator=(std::string_view text) {
    size_ = static_cast<std::uint8_t>(std::min(text.size(), bytes_.size()));
    std::copy_n(text.begin(), size_, bytes_.begin());
    return *this;
  }
  std::string_view view() const { return {bytes_.data(), size_}; }

 private:
  std::array<char, 95> bytes_{};
  std::uint8_t size_ = 0;
};

// A command of another client that occupied the device while a command waited for it.
struct Blocker {
  using Cut = trace::Cut;

  // 0 if no command occupied the device, or none left it before the request ended.
  std::uint64_t session = 0;
  ShortText what;  // "kernel 'gemm'", "copy to device"; empty if no longer known.
  // Total time on the device, including time when no command waited.
  scheduler::Duration on_device{};
  scheduler::Duration together{};  // Part of `on_device` during the wait.
  scheduler::Duration predicted{};
  scheduler::Duration stop_took{};  // From the stop request to the end.
  Cut cut = Cut::kNotAsked;
};

// Report on one request. Some figures cover the whole client, because a client's open requests
// share its work on the device.
struct RequestReport {
  static constexpr std::size_t kOthersMax = 4;

  std::uint64_t number = 0;  // Counts the client's requests from 1. 0: no report.
  bool is_marked = false;    // Marked by the client; otherwise inferred from its pauses.
  bool has_failed = false;
  bool is_open = false;  // Has not ended; the report covers the time so far.
  // As reported by the client, and not later than `begun`; equal to `begun` if inferred.
  scheduler::TimePoint arrived{};
  scheduler::TimePoint begun{};
  scheduler::TimePoint ended{};
  scheduler::Duration target{};  // Zero if none.

  // `ended - begun` is `waited` plus `on_device` plus the time spent on the host.
  scheduler::Duration waited{};      // The client had commands ready, but none on the device.
  scheduler::Duration on_device{};   // The client had commands on the device.
  scheduler::Duration charged{};     // Device time charged to the client.
  scheduler::Duration host_steal{};  // Time that the host withheld from the device.
  scheduler::Duration throttled{};   // The client had commands queued, but had used up its cap.
  scheduler::Duration held{};  // The client had commands queued, but its memory was not resident.
  // Memory evicted for the client during the request, and the session whose memory was evicted
  // last.
  std::uint64_t evicted_bytes = 0, evicted_from = 0;
  std::uint64_t swapped_in_bytes = 0;  // Memory of the client that was swapped in.
  // Number of times that the parked client was woken, and how many of these within the promised
  // time.
  std::uint64_t wakes = 0, wakes_in_time = 0;
  std::uint32_t max_share = 0;  // The client's smallest cap at the end, in thousandths.
  std::uint64_t commands = 0;   // Commands of the client that ended during the request.
  std::uint64_t stops = 0;      // Times a command was preempted.

  scheduler::Duration longest_wait{};  // The longest interval of `waited`.
  Blocker blocker;  // The command that occupied the device for the longest part of that wait.
  scheduler::Duration longest_command{};
  ShortText longest_what;

  // Other clients charged for device time during the request, in descending order, and the sum of
  // the remaining ones.
  struct Other {
    std::uint64_t session = 0;
    scheduler::Duration charged{};
  };
  std::array<Other, kOthersMax> others{};
  scheduler::Duration charged_to_rest{};
  // The request exceeds the execution log, so the figures about commands cover only its last part.
  bool is_cut = false;
  Waterfall waterfall;

  scheduler::Duration latency() const { return ended - arrived; }
};

// Reply about a client's requests.
struct RequestReports {
  // Report on the requested request; report.number is 0 if that request is unknown.
  RequestReport report;
  // Names of the report's execution records; empty if no longer known.
  std::array<ShortText, Waterfall::kExecutionsMax> execution_names;
  // First and last known number, in the order of completion; 0 if none.
  std::uint64_t first = 0, last = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_REQUEST_REPORT_H_
