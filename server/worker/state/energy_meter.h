// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_ENERGY_METER_H_
#define GPUSHARED_SERVER_WORKER_STATE_ENERGY_METER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/types.h"
#include "server/telemetry/totals/device_totals.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/per_client.h"

namespace gpushared::server {

// Splits the energy that a device used in an interval in proportion to time: each client's part is
// that of its charged device time, and the energy of the uncharged time is idle energy. The parts
// are whole millijoules, and their sum is always the energy of the interval.
//
// Confined to the device thread.
class EnergyMeter {
 public:
  // Departed clients that are distinguished until the end of the interval. The time of further ones
  // counts as idle.
  static constexpr std::size_t kDepartedMax = 1024;

  void OnClientAdded(const ClientState& client) { counted_.Begin(client); }
  // Called when the client's device time is final.
  void OnClientGone(const ClientState& client);
  // Ends the interval, in which the device used this energy, and begins the next one. In the first
  // call the energy must be 0, because no interval has begun.
  void EndInterval(std::uint64_t energy_mj, scheduler::TimePoint now,
                   const std::vector<ClientState*>& clients, DeviceTotals::Layout& totals);

 private:
  struct Departed {
    ClientTotals totals;
    scheduler::Duration device_time;
  };

  PerClient<scheduler::Duration> counted_;  // Device time in earlier intervals.
  std::vector<Departed> departed_;
  scheduler::TimePoint since_{};  // Beginning of the interval.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_ENERGY_METER_H_
