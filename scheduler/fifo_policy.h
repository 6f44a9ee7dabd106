// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_FIFO_POLICY_H_
#define GPUSHARED_SCHEDULER_FIFO_POLICY_H_

#include <cstdint>

#include "scheduler/client_table.h"
#include "scheduler/policy.h"

namespace gpushared::scheduler {

// Runs commands in order of arrival, regardless of their clients.
//
// Equivalent to a context without a scheduler, and therefore the baseline of the other policies.
// Never preempts.
class FifoPolicy final : public Policy {
 public:
  LaneRules rules() const override { return {.never_preempts = true}; }

  void OnClientAdded(ClientId client, const ClientSpec& spec, TimePoint now) override;
  void OnClientChanged(ClientId client, const ClientSpec& spec, TimePoint now) override;
  void OnClientRemoved(ClientId client, TimePoint now) override;
  void OnReady(ClientId client, const Head& head, TimePoint now) override;
  void OnIdle(ClientId client, TimePoint now) override;
  void OnStarted(ClientId client, const Head& head, TimePoint now) override;
  void OnEnded(ClientId client, const Ended& ended, TimePoint now) override;
  Decision Pick(TimePoint now) override;
  bool IsPreemptibleBy(const ClientSpec&, const ClientSpec&) const override { return false; }

 private:
  static constexpr std::uint64_t kNotReady = UINT64_MAX;

  ClientTable<std::uint64_t> arrivals_;  // Arrival of each client's head.
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_FIFO_POLICY_H_
