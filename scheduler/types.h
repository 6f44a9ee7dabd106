// SPDX-License-Identifier: Apache-2.0
// The words that mechanism and policy share.

#ifndef GPUSHARED_SCHEDULER_TYPES_H_
#define GPUSHARED_SCHEDULER_TYPES_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "gpushared/limits.h"
#include "gpushared/scheduling_class.h"

namespace gpushared::scheduler {

using Duration = std::chrono::nanoseconds;

// Time since the scheduler was created. It has no `now()`: whoever drives the
// scheduler (the worker's device thread, or a simulation) says what time it is.
struct VirtualClock {
  using rep = Duration::rep;
  using period = Duration::period;
  using duration = Duration;
  using time_point = std::chrono::time_point<VirtualClock>;
  static constexpr bool is_steady = true;
};
using TimePoint = VirtualClock::time_point;

// Never reused while the worker lives, so that a late event about a dead client
// cannot be mistaken for news about its successor.
struct ClientId {
  std::uint64_t value = 0;
  friend auto operator<=>(const ClientId&, const ClientId&) = default;
};

using gpushared::SchedulingClass;
inline constexpr std::size_t kSchedulingClasses = 3;

inline constexpr std::size_t kClientsMax = 256;  // Present in one lane.
// Predicted and measured times are cut off here, which keeps all sums in 64 bits.
inline constexpr Duration kCommandTimeMax = std::chrono::hours(1);

struct ClientSpec {
  SchedulingClass scheduling_class = SchedulingClass::kNormal;
  std::uint32_t weight = 1;                // Relative share of device time, 1..kWeightMax.
  std::optional<Duration> latency_target;  // Per request, as told by the client.
  // Under policies with groups (`FairShares`), clients with the same number share what one would
  // have: a group has the weight of its heaviest client. Constant. None: a group of its own.
  std::optional<std::uint64_t> group = std::nullopt;
};

// A request as its client marked it: what its latency promise is about.
struct RequestMark {
  std::uint64_t number = 0;  // Names it among its client's open requests.
  // When it reached the client, which may be before the client said so.
  TimePoint arrived{};
};

struct PolicyOptions {
  // How long a client keeps the device while another one waits.
  Duration slice = std::chrono::milliseconds(2);
  // Part of device time, 0..0.9, that the low class gets while it has work, whatever
  // the other classes ask for. 0: low runs in gaps only.
  double low_floor = 0.0;
  // A lower class resumes when the higher ones have been idle this long.
  Duration hold_off = std::chrono::microseconds(20);
  // Under `deadline`: when no promised request was open for this long, work that may make the
  // next one late runs all the same.
  Duration patience = std::chrono::milliseconds(20);
};

// A policy's report about promises. Counts run from its creation.
struct TargetReport {
  std::uint64_t requests = 0;  // Ended, of clients with a promise.
  std::uint64_t met = 0;       // Ended within their promise.
  // Requests whose promise was given up, by class: they could not all be kept.
  std::array<std::uint64_t, kSchedulingClasses> abandoned{};
  // Times something was started that cannot be stopped in time for the next request.
  std::uint64_t at_risk = 0;
  // A request that was given up is open, since no longer than its promise.
  bool is_overloaded = false;
};

// A client's next command, as far as a policy may know it.
struct Head {
  Duration predicted{};       // Device time it is expected to take.
  std::uint64_t arrival = 0;  // Ascending over all clients of the lane.
  bool stoppable = false;     // Once started it can be stopped at its next unit.
};

// A command that left the device.
struct Ended {
  Duration held{};         // Device time charged to it.
  Duration predicted{};    // Head::predicted.
  bool stoppable = false;  // Head::stoppable.
  // The policy had it stopped (and it may have ended by itself).
  bool stop_asked = false;
  std::uint8_t account = 0;  // Decision::account of its start.
};

struct Decision {
  enum class Kind : std::uint8_t {
    kWait,  // Nothing to do before reconsider_at or the next event.
    kRun,   // Submit the head of `client`, as soon as the lane's bounds allow.
    kStop,  // Stop all stoppable commands of `client` that were not asked before.
  };
  Kind kind = Kind::kWait;
  ClientId client;
  // Ask again then even if nothing happens. Later than the `now` of the question.
  std::optional<TimePoint> reconsider_at;
  // For kRun, and the policy's own: under what it is to be charged, whatever happens meanwhile.
  std::uint8_t account = 0;

  static Decision Wait(std::optional<TimePoint> until = {}) { return {.reconsider_at = until}; }
  static Decision Run(ClientId client, std::optional<TimePoint> reconsider_at = {}) {
    return {.kind = Kind::kRun, .client = client, .reconsider_at = reconsider_at};
  }
  static Decision Stop(ClientId client) {
    return {.kind = Kind::kStop, .client = client, .reconsider_at = {}};
  }
};

// The earlier of two moments; empty means never.
inline std::optional<TimePoint> Earlier(std::optional<TimePoint> left,
                                        std::optional<TimePoint> right) {
  if (!left || !right) return left ? left : right;
  return std::min(*left, *right);
}

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_TYPES_H_
