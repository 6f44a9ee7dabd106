// SPDX-License-Identifier: Apache-2.0
#include "scheduler/fair_policy.h"

namespace gpushared::scheduler {

void FairPolicy::OnClientAdded(ClientId client, const ClientSpec& spec, TimePoint) {
  shares_.Add(client, kOnlyLevel, spec.weight, spec.group);
}

void FairPolicy::OnClientChanged(ClientId client, const ClientSpec& spec, TimePoint now) {
  shares_.Change(client, kOnlyLevel, spec.weight, now);
}

void FairPolicy::OnClientRemoved(ClientId client, TimePoint now) { shares_.Remove(client, now); }

void FairPolicy::OnReady(ClientId client, const Head&, TimePoint) { shares_.OnReady(client); }

void FairPolicy::OnIdle(ClientId client, TimePoint now) { shares_.OnIdle(client, now); }

void FairPolicy::OnStarted(ClientId client, const Head& head, TimePoint now) {
  shares_.OnStarted(client, head, now);
}

void FairPolicy::OnEnded(ClientId client, const Ended& ended, TimePoint now) {
  shares_.OnEnded(client, ended, now);
}

Decision FairPolicy::Pick(TimePoint now) { return shares_.Pick(kOnlyLevel, now); }

}  // namespace gpushared::scheduler
