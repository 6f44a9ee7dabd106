// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_ROUND_ROBIN_POLICY_H_
#define GPUSHARED_SCHEDULER_ROUND_ROBIN_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "scheduler/client_table.h"
#include "scheduler/policy.h"

namespace gpushared::scheduler {

// Gives the device to one client after the other, for equal slices of time.
//
// The holder keeps the device until its slice has passed or it has nothing left to run. At the end
// of the slice its stoppable command is stopped. A non-preemptible command overruns, and the client
// pays the overrun back through shorter or skipped slices. Time in which no other client had work
// does not count as an overrun. Ignores classes and weights.
class RoundRobinPolicy final : public Policy {
 public:
  explicit RoundRobinPolicy(const PolicyOptions& options);

  LaneRules rules() const override { return {.one_client_at_a_time = true}; }

  void OnClientAdded(ClientId client, const ClientSpec& spec, TimePoint now) override;
  void OnClientChanged(ClientId client, const ClientSpec& spec, TimePoint now) override;
  void OnClientRemoved(ClientId client, TimePoint now) override;
  void OnReady(ClientId client, const Head& head, TimePoint now) override;
  void OnIdle(ClientId client, TimePoint now) override;
  void OnStarted(ClientId client, const Head& head, TimePoint now) override;
  void OnEnded(ClientId client, const Ended& ended, TimePoint now) override;
  Decision Pick(TimePoint now) override;

 private:
  struct Account {
    // Position in the circle; ascends in the order of arrival and never changes.
    std::uint64_t place = 0;
    Duration debt{};  // Overrun that has not been paid back yet.
    std::size_t running = 0;
    std::size_t stoppable = 0;  // Number of running stoppable commands that have not been stopped.
    bool ready = false;
  };

  bool OthersReady(const Account& holder) const {
    return ready_count_ > (holder.ready ? std::size_t{1} : std::size_t{0});
  }
  // Returns the decision of Pick while the holder keeps the device; empty once the device passes to
  // another client.
  std::optional<Decision> KeepHolder(TimePoint now);
  Decision NextHolder();

  const Duration slice_;
  ClientTable<Account> accounts_;
  std::size_t ready_count_ = 0;
  std::uint64_t last_place_ = 0;    // The place that was assigned last.
  std::uint64_t cursor_place_ = 0;  // Place of the latest holder.

  std::optional<ClientId> holder_;
  Duration turn_budget_{};
  std::optional<TimePoint> turn_end_;  // Set when the holder's first command starts.
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_ROUND_ROBIN_POLICY_H_
