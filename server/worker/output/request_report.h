// SPDX-License-Identifier: Apache-2.0
// Why a request took as long as it did: what is kept of each, and how it is told.

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

// A short text without an allocation; cut off where it does not fit.
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

// A command of another client that had the device while one waited for it.
struct Blocker {
  using Cut = trace::Cut;

  std::uint64_t session = 0;  // 0: nobody was on the device, or left it before the request ended.
  ShortText what;             // "kernel 'gemm'", "copy to device"; empty when no longer known.
  scheduler::Duration on_device{};  // All of it, not only while the other waited.
  scheduler::Duration together{};   // While it waited.
  scheduler::Duration predicted{};
  scheduler::Duration stop_took{};  // From asking to its end.
  Cut cut = Cut::kNotAsked;
};

// One request that has ended. "Its client" because a client's open requests share what the
// client has on the device.
struct RequestReport {
  static constexpr std::size_t kOthersMax = 4;

  std::uint64_t number = 0;  // Counts the requests of its client from 1. 0: no report.
  bool is_marked = false;    // By the client; else told from its pauses.
  bool has_failed = false;
  bool is_open = false;            // It has not ended: the report is of its time so far.
  scheduler::TimePoint arrived{};  // By the client's word; earlier than or equal to begun.
  scheduler::TimePoint begun{};
  scheduler::TimePoint ended{};
  scheduler::Duration target{};  // Zero: none.

  // These two and what is left (the host's part) add up to ended - begun.
  scheduler::Duration waited{};      // Its client had commands ready, and none on the device.
  scheduler::Duration on_device{};   // Its client had commands on the device.
  scheduler::Duration charged{};     // Device time of its client.
  scheduler::Duration host_steal{};  // The machine kept the device from its work.
  scheduler::Duration throttled{};   // It had commands queued, and its cap was used up.
  scheduler::Duration held{};        // It had commands queued, and its memory was not there.
  // Memory that was moved out for it meanwhile, and whose the last was.
  std::uint64_t evicted_bytes = 0, evicted_for = 0;
  std::uint64_t swapped_in_bytes = 0;  // Its own memory.
  std::uint32_t max_share = 0;         // The least of its caps at the end, in thousandths.
  std::uint64_t commands = 0;          // Its client's, ended meanwhile.
  std::uint64_t stops = 0;             // Commands taken off unfinished.

  scheduler::Duration longest_wait{};  // The longest part of `waited`.
  Blocker blocker;                     // Who was on the device for most of it.
  scheduler::Duration longest_command{};
  ShortText longest_what;

  // Who else was charged for device time meanwhile, the most first, and the rest.
  struct Other {
    std::uint64_t session = 0;
    scheduler::Duration charged{};
  };
  std::array<Other, kOthersMax> others{};
  scheduler::Duration charged_to_rest{};
  // More went on than the worker remembers: the parts about commands are of the last part only.
  bool is_cut = false;
  Waterfall waterfall;

  scheduler::Duration latency() const { return ended - arrived; }
};

// The device thread's knowledge of a client's requests.
struct RequestsTold {
  RequestReport report;  // Of the one that was asked about; number 0: it is not known.
  // What its stays are called; empty where that is not known any more.
  std::array<ShortText, Waterfall::kStaysMax> stay_names;
  // Of those known, in the order of their ends; 0: none.
  std::uint64_t first = 0, last = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_REQUEST_REPORT_H_
