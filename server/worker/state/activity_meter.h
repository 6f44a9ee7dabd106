// SPDX-License-Identifier: Apache-2.0
// What clients wait for and get: the time they wait and are on the device, the gaps that the
// high class leaves, and whether shares are as their weights say.

#ifndef GPUSHARED_SERVER_WORKER_STATE_ACTIVITY_METER_H_
#define GPUSHARED_SERVER_WORKER_STATE_ACTIVITY_METER_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "scheduler/types.h"

namespace gpushared::server {

// One client's part. Written by ActivityMeter alone.
struct ClientActivity {
  enum class Phase : std::uint8_t {
    kAway,      // Nothing ready, nothing on the device.
    kWaiting,   // Commands ready, none on the device.
    kOnDevice,  // Commands on the device.
  };

  Phase phase = Phase::kAway;
  scheduler::TimePoint since{};  // In that phase.
  // Over all, up to `since`.
  scheduler::Duration waited{};
  scheduler::Duration on_device{};
  // The same up to now.
  scheduler::Duration WaitedUntil(scheduler::TimePoint now) const {
    return phase == Phase::kWaiting ? waited + (now - since) : waited;
  }
  scheduler::Duration OnDeviceUntil(scheduler::TimePoint now) const {
    return phase == Phase::kOnDevice ? on_device + (now - since) : on_device;
  }
  // For how long it has waited and not had a hundredth of that time on the device: since it had, or
  // since it last paused for a second.
  scheduler::Duration StarvedFor(scheduler::TimePoint now) const {
    if (phase == Phase::kAway && now - since >= kPause) return {};
    const scheduler::Duration wait = WaitedUntil(now) - waited_before;
    return (OnDeviceUntil(now) - on_device_before) * 100 < wait ? wait : scheduler::Duration{};
  }

  // Of the last full window, see ActivityMeter, in percentage points: what it got less what was
  // due to it. Positive: it got more.
  double share_error = 0;
  double share_error_worst = 0;  // The largest by amount.
  std::uint64_t windows = 0;     // Full ones.

 private:
  friend class ActivityMeter;
  // Until the time that StarvedFor is about.
  static constexpr scheduler::Duration kPause = std::chrono::seconds(1);
  scheduler::Duration waited_before{}, on_device_before{};
  scheduler::SchedulingClass of_class = scheduler::SchedulingClass::kNormal;
  std::uint32_t weight = 1;
  std::size_t group = 0;  // In the meter.
  scheduler::TimePoint window_begin{};
  // Its group's and its class's, when last looked at.
  double virtual_since = 0, charged_since = 0;
  double received_ns = 0, due_ns = 0, class_ns = 0;
};

// Meter of one device. A gap is time in which no client of the high class has anything ready or on
// the device and another client has.
//
// The charge of a class is due to its active groups, by the weight of each one's heaviest client.
// A group's part is due to its active clients, by their weights. A client without a group is one.
// A window is at least a second. In it the class was charged at least a quarter of a second while
// the client was active. The error is in parts of that charged time.
//
// Each call is of constant cost, but Begin, End and OnChanged, and allocates nothing. Confined to
// the device thread.
class ActivityMeter {
 public:
  using Phase = ClientActivity::Phase;

  // Without classes all clients share as one class.
  explicit ActivityMeter(bool classes_matter) : classes_matter_(classes_matter) {}

  // `client` stays where it is until End, or for as long as the meter is used.
  void Begin(ClientActivity& client, const scheduler::ClientSpec& spec, scheduler::TimePoint now);
  void End(ClientActivity& client, scheduler::TimePoint now);
  void OnChanged(ClientActivity& client, const scheduler::ClientSpec& spec,
                 scheduler::TimePoint now);
  // The client is in this phase from now on.
  void Set(ClientActivity& client, Phase phase, scheduler::TimePoint now);
  // Before its phase changes because of the end of the command that this is charged for.
  void OnCharged(ClientActivity& client, scheduler::Duration charged, scheduler::TimePoint now);
  // Brings its share error up to date; for those who are never charged.
  void Refresh(ClientActivity& client, scheduler::TimePoint now);

  struct Gaps {
    scheduler::Duration wanted{};  // All gaps.
    scheduler::Duration used{};    // Gap time with commands on the device.
  };
  const Gaps& gaps() const { return gaps_; }

 private:
  struct Level {
    double virtual_ns = 0;  // Charged time per active weight, summed up.
    double charged_ns = 0;
    std::uint64_t active_weight = 0;  // Sum over groups.
  };
  // The clients of a group have this together in a level.
  struct Share {
    std::uint32_t weight = 1;         // The heaviest client's, active or not.
    std::uint64_t active_weight = 0;  // Sum over clients.
    double virtual_ns = 0;            // Time due to them per active weight, summed up until
    double within_guarantee_at = 0;   // this virtual time of the level.
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
  // After a client of the group came, left or changed.
  void Reweigh(std::size_t group);
  // `sign` is 1 for a client that comes to be active, -1 for one that no longer is.
  void Count(const ClientActivity& client, int sign);
  void CountGap(scheduler::TimePoint now);
  void Earn(ClientActivity& client);

  const bool classes_matter_;
  std::array<Level, scheduler::kSchedulingClasses> levels_{};
  std::array<Group, scheduler::kClientsMax> groups_{};
  std::array<const ClientActivity*, scheduler::kClientsMax> clients_{};  // Null where none is.
  std::uint32_t high_active_ = 0;
  std::uint32_t others_active_ = 0;
  std::uint32_t others_on_device_ = 0;
  scheduler::TimePoint counted_until_{};
  Gaps gaps_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_ACTIVITY_METER_H_
