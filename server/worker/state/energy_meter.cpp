// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/energy_meter.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpushared::server {
namespace {

// What is left of an interval. Taking parts from the rest instead of from the whole makes the sum
// of the parts exact.
class Rest {
 public:
  Rest(std::uint64_t energy_mj, scheduler::Duration time) : energy_mj_(energy_mj), time_(time) {}

  std::uint64_t Take(scheduler::Duration part) {
    if (part.count() <= 0) return 0;
    const double share = static_cast<double>(part.count()) / static_cast<double>(time_.count());
    const auto energy_mj =
        std::min(energy_mj_,
                 static_cast<std::uint64_t>(std::llround(static_cast<double>(energy_mj_) * share)));
    time_ -= part;
    energy_mj_ -= energy_mj;
    return energy_mj;
  }
  std::uint64_t energy_mj() const { return energy_mj_; }

 private:
  std::uint64_t energy_mj_;
  scheduler::Duration time_;
};

}  // namespace

void EnergyMeter::OnClientGone(const ClientState& client) {
  const scheduler::Duration time = client.counters.device_time - counted_[client];
  if (time.count() <= 0) return;
  const auto same =
      std::ranges::find(departed_, client.totals, [](const Departed& each) { return each.totals; });
  if (same != departed_.end()) {
    same->device_time += time;
  } else if (departed_.size() < kDepartedMax) {
    departed_.push_back({client.totals, time});
  }
}

void EnergyMeter::EndInterval(std::uint64_t energy_mj, scheduler::TimePoint now,
                              const std::vector<ClientState*>& clients,
                              DeviceTotals::Layout& totals) {
  const auto get_time = [&](const ClientState& client) {
    return client.counters.device_time - counted_[client];
  };
  scheduler::Duration charged{};
  for (const Departed& each : departed_) charged += each.device_time;
  for (const ClientState* const client : clients) charged += get_time(*client);
  // Host steal that is detected late reduces later charges, so the sum may exceed the interval.
  Rest rest(energy_mj, std::max(now - since_, charged));
  for (Departed& each : departed_) each.totals.AddEnergy(rest.Take(each.device_time));
  for (ClientState* const client : clients) {
    const std::uint64_t part_mj = rest.Take(get_time(*client));
    client->counters.energy_mj.Add(part_mj);
    client->totals.AddEnergy(part_mj);
    counted_[*client] = client->counters.device_time;
  }
  totals.energy_idle_mj.Add(rest.energy_mj());
  totals.energy_mj.Add(energy_mj);
  departed_.clear();
  since_ = now;
}

}  // namespace gpushared::server
