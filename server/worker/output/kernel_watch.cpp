// SPDX-License-Identifier: Apache-2.0
#include "server/worker/output/kernel_watch.h"

#include <algorithm>
#include <utility>

namespace gpushared::server {

void KernelWatch::Charge(scheduler::TimePoint now) {
  if (!entries_.empty()) entries_.front().ran += now - since_;
  since_ = now;
}

void KernelWatch::OnSubmitted(device::WorkId id, std::uint8_t priority, scheduler::Duration ran,
                              std::optional<scheduler::Duration> limit, scheduler::TimePoint now) {
  Charge(now);
  const auto after =
      std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.priority < priority; });
  entries_.insert(
      after,
      {.id = id, .priority = priority, .ended_on_request = false, .ran = ran, .limit = limit});
}

void KernelWatch::SetHostSteal(scheduler::Duration total, scheduler::TimePoint now) {
  const scheduler::Duration more = total - std::exchange(host_steal_, total);
  if (more == scheduler::Duration::zero() || entries_.empty()) return;
  Charge(now);
  scheduler::Duration& ran = entries_.front().ran;
  ran -= std::min(ran, more);
}

scheduler::Duration KernelWatch::OnCompleted(device::WorkId id, scheduler::TimePoint now) {
  Charge(now);
  const auto found = std::ranges::find(entries_, id, &Entry::id);
  if (found == entries_.end()) return {};
  const scheduler::Duration ran = found->ran;
  entries_.erase(found);
  return ran;
}

std::optional<KernelWatch::Overdue> KernelWatch::TakeOverdue(scheduler::TimePoint now) {
  Charge(now);
  if (entries_.empty()) return std::nullopt;
  Entry& served = entries_.front();
  if (!served.limit || served.ended_on_request || served.ran < *served.limit) return std::nullopt;
  served.ended_on_request = true;
  return Overdue{.id = served.id, .ran = served.ran, .limit = *served.limit};
}

std::optional<scheduler::TimePoint> KernelWatch::wake_at() const {
  if (entries_.empty() || !entries_.front().limit || entries_.front().ended_on_request)
    return std::nullopt;
  return since_ + (*entries_.front().limit - entries_.front().ran);
}

}  // namespace gpushared::server
