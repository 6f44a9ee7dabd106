// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_INTAKE_RING_VISITS_H_
#define GPUSHARED_SERVER_WORKER_INTAKE_RING_VISITS_H_

#include <chrono>
#include <cstddef>
#include <span>

#include "scheduler/types.h"

namespace gpushared::server {

// Which clients' rings one turn of the device thread looks at: those of all urgent clients, then
// those of others until they have taken kOthersPerTurn. The next turn goes on behind the last of
// these. So floods of others cost an urgent client at most that time and one visit, and none of
// the others is shut out.
//
// Confined to the device thread.
class RingVisits {
 public:
  // Long against a visit (32 records, about 10 us), short against a kernel.
  static constexpr scheduler::Duration kOthersPerTurn = std::chrono::microseconds(100);

  // `visit(client)` says whether it took anything, `is_urgent(client)` who goes first, `now()` the
  // time, asked once and after each visit that took something. Returns whether any did.
  template <typename Client, typename IsUrgent, typename Visit, typename Now>
  bool Turn(std::span<Client* const> clients, IsUrgent is_urgent, Visit visit, Now now) {
    bool took = false;
    for (Client* const client : clients) {
      if (is_urgent(*client)) took |= visit(*client);
    }
    was_cut_ = false;
    const std::size_t first = ++first_ < clients.size() ? first_ : 0;
    first_ = first;
    const scheduler::TimePoint until = now() + kOthersPerTurn;
    for (std::size_t i = 0; i < clients.size(); ++i) {
      const std::size_t at = (first + i) % clients.size();
      if (is_urgent(*clients[at]) || !visit(*clients[at])) continue;
      took = true;
      if (now() < until) continue;
      first_ = at;
      was_cut_ = true;
      break;
    }
    return took;
  }
  // Whether the last turn ended with kOthersPerTurn: the others may have more.
  bool was_cut() const { return was_cut_; }

 private:
  bool was_cut_ = false;
  std::size_t first_ = 0;  // The first of the others, in this turn or the last one.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_INTAKE_RING_VISITS_H_
