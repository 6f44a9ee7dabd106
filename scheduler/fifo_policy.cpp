// SPDX-License-Identifier: Apache-2.0
#include "scheduler/fifo_policy.h"

namespace gpushared::scheduler {

void FifoPolicy::OnClientAdded(ClientId client, const ClientSpec&, TimePoint) {
  arrivals_.Add(client, kNotReady);
}

void FifoPolicy::OnClientChanged(ClientId, const ClientSpec&, TimePoint) {}

void FifoPolicy::OnClientRemoved(ClientId client, TimePoint) { arrivals_.Remove(client); }

void FifoPolicy::OnReady(ClientId client, const Head& head, TimePoint) {
  arrivals_.At(client) = head.arrival;
}

void FifoPolicy::OnIdle(ClientId client, TimePoint) { arrivals_.At(client) = kNotReady; }

void FifoPolicy::OnStarted(ClientId, const Head&, TimePoint) {}

void FifoPolicy::OnEnded(ClientId, const Ended&, TimePoint) {}

Decision FifoPolicy::Pick(TimePoint) {
  std::uint64_t earliest = kNotReady;
  ClientId owner;
  for (const auto& [client, arrival] : arrivals_) {
    if (arrival >= earliest) continue;
    earliest = arrival;
    owner = client;
  }
  return earliest == kNotReady ? Decision::Wait() : Decision::Run(owner);
}

}  // namespace gpushared::scheduler
