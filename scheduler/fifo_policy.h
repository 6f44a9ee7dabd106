// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_FIFO_POLICY_H_
#define GPUSHARED_SCHEDULER_FIFO_POLICY_H_

#include <cstdint>

#include "scheduler/client_table.h"
#include "scheduler/policy.h"

namespace gpushared::scheduler {

// Runs commands in the order of their arrival, whoever they belong to.
//
// A plain shared context does the same, so it is the baseline of the other policies. It never
// stops anything.
class FifoPolicy final : public Policy {
 public:
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

  ClientTable<std::uint64_t> arrivals_;  // When each client's head arrived.
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_FIFO_POLICY_H_
