// SPDX-License-Identifier: Apache-2.0
// Per-client waiting and on-device time, the gaps that the high class leaves, and how far each
// client's share deviates from its weight.

#ifndef GPUSHARED_SERVER_WORKER_STATE_ACTIVITY_METER_H_
#define GPUSHARED_SERVER_WORKER_STATE_ACTIVITY_METER_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "scheduler/types.h"

namespace gpushared::server {

// One client's part of the meter. Only ActivityMeter writes it.
struct ClientActivity {
  enum class Phase : std::uint8_t {
    kAway,      // Nothing ready, nothing on the device.
    kWaiting,   // Commands ready, none on the device.
    kOnDevice,  // Commands on the device.
  };

  Phase phase = Phase::kAway;
  scheduler::TimePoint since{};  // Start of the current phase.
  // Totals up to `since`.
  scheduler::Duration waited{};
  scheduler::Duration on_device{};
  // Totals up to `now`.
  scheduler::Duration WaitedUntil(scheduler::TimePoint now) const {
    return phase == Phase::kWaiting ? waited + (now - since) : waited;
  }
  scheduler::Duration OnDeviceUntil(scheduler::TimePoint now) const {
    return phase == Phase::kOnDevice ? on_device + (now - since) : on_device;
  }
  // Returns how long the client has been waiting while its time on the device was less than 1 % of
  // its waiting time. Both are counted from the moment at which the client last reached 1 %, or at
  // which it last paused for a second.
  scheduler::Duration StarvedFor(scheduler::TimePoint now) const {
    if (phase == Phase::kAway && now - since >= kPause) return {};
    const scheduler::Duration wait = WaitedUntil(now) - waited_before;
    return (OnDeviceUntil(now) - on_device_before) * 100 < wait ? wait : scheduler::Duration{};
  }

  // Share error of the last full window (see ActivityMeter), in percentage points: the share
  // received minus the share due. Positive if the client received more.
  double share_error = 0;
  double share_error_worst = 0;  // The largest in absolute value.
  std::uint64_t windows = 0;     // Full windows.

 private:
  friend class ActivityMeter;
  static constexpr scheduler::Duration kPause = std::chrono::seconds(1);
  // Totals at the start of the period that StarvedFor measures.
  scheduler::Duration waited_before{}, on_device_before{};
  scheduler::SchedulingClass of_class = scheduler::SchedulingClass::kNormal;
  std::uint32_t weight = 1;
  std::size_t group = 0;  // Index in ActivityMeter::groups_.
  scheduler::TimePoint window_begin{};
  // The group's virtual time and the class's charge at the last update.
  double virtual_since = 0, charged_since = 0;
  double received_ns = 0, due_ns = 0, class_ns = 0;
};

// Activity meter of one device. A gap is time in which no client of the high class has commands
// ready or running, but another client has.
//
// The charge of a class is due to its active groups in proportion to the weight of each group's
// heaviest client, and a group's part is due to its active clients in proportion to their weights.
// A client without a group forms a separate one. A window lasts at least a second, and long enough
// that the class was charged at least a quarter of a second while the client was active. The share
// error is relative to that charge.
//
// No call allocates, and all except Begin, End and OnChanged take constant time. Confined to the
// device thread.
class ActivityMeter {
 public:
  using Phase = ClientActivity::Phase;

  // If `classes_matter` is false, all clients share as one class.
  explicit ActivityMeter(bool classes_matter) : classes_matter_(classes_matter) {}

  // `client` must keep its address until End or the end of the meter.
  void Begin(ClientActivity& client, const scheduler::ClientSpec& spec, scheduler::TimePoint now);
  void End(ClientActivity& client, scheduler::TimePoint now);
  void OnChanged(ClientActivity& client, const scheduler::ClientSpec& spec,
                 scheduler::TimePoint now);
  // Moves the client to this phase as of `now`.
  void Set(ClientActivity& client, Phase phase, scheduler::TimePoint now);
  // Must be called before the end of the charged command changes the client's phase.
  void OnCharged(ClientActivity& client, scheduler::Duration charged, scheduler::TimePoint now);
  // Updates the share error even if none of the client's commands has been charged since.
  void Refresh(ClientActivity& client, scheduler::TimePoint now);

  struct Gaps {
    scheduler::Duration wanted{};  // Total time of all gaps.
    scheduler::Duration used{};    // Gap time with commands on the device.
  };
  const Gaps& gaps() const { return gaps_; }

 private:
  struct Level {
    double virtual_ns = 0;  // Charged time per unit of active weight, accumulated.
    double charged_ns = 0;
    std::uint64_t active_weight = 0;  // Sum over groups.
  };
  // Joint share of a group's clients in a level.
  struct Share {
    std::uint32_t weight = 1;         // Weight of the heaviest client, active or not.
    std::uint64_t active_weight = 0;  // Sum over clients.
    double virtual_ns = 0;            // Time due per unit of active weight, accumulated.
    // The level's virtual time up to which virtual_ns is accumulated.
    double settled_at = 0;
  };
  struct Group {
    std::optional<std::uint64_t> number;
    std::size_t clients = 0;  // 0: free.
    std::array<Share, scheduler::kSchedulingClasses> shares{};
  };

  static bool IsActive(Phase phase) { return phase != Phase::kAway; }
  std::size_t GetIndex(const ClientActivity& client) const {
    return classes_matter_ ? static_cast<std::size_t>(client.of_class) : 0;
  }
  Level& GetLevel(const ClientActivity& client) { return levels_[GetIndex(client)]; }
  Share& ShareFor(const ClientActivity& client) {
    return groups_[client.group].shares[GetIndex(client)];
  }
  static void Settle(Share& share, const Level& level);
  std::size_t GroupFor(std::optional<std::uint64_t> number) const;
  // Recomputes the group's weights after one of its clients connected, left or changed.
  void Reweigh(std::size_t group);
  // `sign` is 1 for a client that becomes active and -1 for one that becomes inactive.
  void Count(const ClientActivity& client, int sign);
  void CountGap(scheduler::TimePoint now);
  void Earn(ClientActivity& client);

  const bool classes_matter_;
  std::array<Level, scheduler::kSchedulingClasses> levels_{};
  std::array<Group, scheduler::kClientsMax> groups_{};
  std::array<const ClientActivity*, scheduler::kClientsMax> clients_{};  // Null if unused.
  std::uint32_t high_active_ = 0;
  std::uint32_t others_active_ = 0;
  std::uint32_t others_on_device_ = 0;
  scheduler::TimePoint counted_until_{};
  Gaps gaps_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_ACTIVITY_METER_H_
