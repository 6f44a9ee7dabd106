// SPDX-License-Identifier: Apache-2.0
// Vocabulary shared by the device lane (mechanism) and the policies.

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

// Clock that counts from the creation of the scheduler. The clock has no `now()`: the driver of the
// scheduler (the worker's device thread, or a simulation) passes the current time.
struct VirtualClock {
  using rep = Duration::rep;
  using period = Duration::period;
  using duration = Duration;
  using time_point = std::chrono::time_point<VirtualClock>;
  static constexpr bool is_steady = true;
};
using TimePoint = VirtualClock::time_point;

// Number of a client. Not reused during the worker's life, because otherwise a late event about a
// removed client could be attributed to its successor.
struct ClientId {
  std::uint64_t value = 0;
  friend auto operator<=>(const ClientId&, const ClientId&) = default;
};

using gpushared::SchedulingClass;
inline constexpr std::size_t kSchedulingClasses = 3;

inline constexpr std::size_t kClientsMax = 256;  // Limit of clients in one lane.
// Upper bound of predicted and measured times, so that all sums fit into 64 bits.
inline constexpr Duration kCommandTimeMax = std::chrono::hours(1);

struct ClientSpec {
  SchedulingClass scheduling_class = SchedulingClass::kNormal;
  std::uint32_t weight = 1;                // Relative share of device time, 1..kWeightMax.
  std::optional<Duration> latency_target;  // Latency target of each request, as set by the client.
  // Under policies with groups (`FairShares`), clients with the same number share what one client
  // would have: a group has the weight of its heaviest client. A client never changes its group.
  // Without a value the client forms a group alone.
  std::optional<std::uint64_t> group = std::nullopt;
};

// A request, as marked by its client.
struct RequestMark {
  std::uint64_t number = 0;  // Unique among its client's open requests.
  // Arrival at the client, which may be earlier than the client's report.
  TimePoint arrived{};
};

struct PolicyOptions {
  // How long a client keeps the device while another one waits.
  Duration slice = std::chrono::milliseconds(2);
  // Minimum share of device time, 0..0.9, of the low class while it has work, regardless of higher
  // classes. With 0, the low class runs only in gaps.
  double low_floor = 0.0;
  // A lower class resumes when the higher ones have been idle for this long.
  Duration hold_off = std::chrono::microseconds(20);
  // Under `deadline`: once no request with a target has been open for this long, work that may
  // delay the next one is admitted.
  Duration patience = std::chrono::milliseconds(20);
};

// Statistics about latency targets since the policy was created.
struct TargetReport {
  std::uint64_t requests = 0;  // Ended requests of clients with a target.
  std::uint64_t met = 0;       // Ended requests that met their target.
  // Number, by class, of requests that were abandoned because not all targets could be met.
  std::array<std::uint64_t, kSchedulingClasses> abandoned{};
  // Number of times work started that could not be stopped in time for the next request.
  std::uint64_t at_risk = 0;
  // Whether an open request was abandoned within the last period of its target.
  bool is_overloaded = false;
};

// The properties of a client's next command that a policy may use.
struct Head {
  Duration predicted{};       // Expected device time.
  std::uint64_t arrival = 0;  // Order of arrival over all clients of the lane.
  bool stoppable = false;     // Whether the command, once started, can be stopped at its next unit.
};

// A command that left the device.
struct Ended {
  Duration held{};         // Device time charged to the command.
  Duration predicted{};    // Head::predicted.
  bool stoppable = false;  // Head::stoppable.
  // Whether the policy stopped the command, which may nevertheless have ended normally.
  bool stop_asked = false;
  std::uint8_t account = 0;  // Decision::account with which the command was started.
};

struct Decision {
  enum class Kind : std::uint8_t {
    kWait,  // Nothing to do before reconsider_at or the next event.
    kRun,   // Submit the head of `client` as soon as the lane's bounds allow.
    kStop,  // Stop all stoppable commands of `client` that have not been stopped yet.
  };
  Kind kind = Kind::kWait;
  ClientId client;
  // Time at which Pick must be called again even without an event; later than the current `now`.
  std::optional<TimePoint> reconsider_at;
  // For kRun: the account to charge, chosen by the policy and unaffected by later changes.
  std::uint8_t account = 0;

  static Decision Wait(std::optional<TimePoint> until = {}) { return {.reconsider_at = until}; }
  static Decision Run(ClientId client, std::optional<TimePoint> reconsider_at = {}) {
    return {.kind = Kind::kRun, .client = client, .reconsider_at = reconsider_at};
  }
  static Decision Stop(ClientId client) {
    return {.kind = Kind::kStop, .client = client, .reconsider_at = {}};
  }
};

// Returns the earlier of two moments; empty means never.
inline std::optional<TimePoint> Earlier(std::optional<TimePoint> left,
                                        std::optional<TimePoint> right) {
  if (!left || !right) return left ? left : right;
  return std::min(*left, *right);
}

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_TYPES_H_
