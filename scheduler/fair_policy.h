// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_FAIR_POLICY_H_
#define GPUSHARED_SCHEDULER_FAIR_POLICY_H_

#include "scheduler/fair_shares.h"
#include "scheduler/policy.h"

namespace gpushared::scheduler {

// Shares device time among all clients with work, in proportion to their weights.
//
// Shares are measured in charged time, not in commands. A client that has had less than its share
// waits at most a slice for a stoppable command of another client. Ignores classes.
class FairPolicy final : public Policy {
 public:
  explicit FairPolicy(const PolicyOptions& options)
      : shares_(options.slice, options.hold_off, kOnlyLevel) {}

  void OnClientAdded(ClientId client, const ClientSpec& spec, TimePoint now) override;
  void OnClientChanged(ClientId client, const ClientSpec& spec, TimePoint now) override;
  void OnClientRemoved(ClientId client, TimePoint now) override;
  void OnReady(ClientId client, const Head& head, TimePoint now) override;
  void OnIdle(ClientId client, TimePoint now) override;
  void OnStarted(ClientId client, const Head& head, TimePoint now) override;
  void OnEnded(ClientId client, const Ended& ended, TimePoint now) override;
  Decision Pick(TimePoint now) override;

 private:
  static constexpr FairShares::Level kOnlyLevel = 0;

  FairShares shares_;
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_FAIR_POLICY_H_
