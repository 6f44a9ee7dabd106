// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_INTAKE_RING_VISITS_H_
#define GPUSHARED_SERVER_WORKER_INTAKE_RING_VISITS_H_

#include <chrono>
#include <cstddef>
#include <span>

#include "scheduler/types.h"

namespace gpushared::server {

// Selects the rings that are visited in one iteration of the device thread: first those of all
// urgent clients, then others until these have taken kOthersPerTurn. The next iteration continues
// after the last ring visited. Hence floods of other clients delay an urgent client by at most that
// time and one visit, and none of the others is starved.
//
// Confined to the device thread.
class RingVisits {
 public:
  // Long compared with a visit (32 records, about 10 us), short compared with a kernel.
  static constexpr scheduler::Duration kOthersPerTurn = std::chrono::microseconds(100);

  // `visit(client)` returns whether it took any record, `is_urgent(client)` whether the client goes
  // first, and `now()` the time. `now` is called once, and again after each visit to a non-urgent
  // client that took a record. Returns whether any visit took a record.
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
  // Whether the last iteration was ended by kOthersPerTurn, so that other clients may have more
  // records.
  bool was_cut() const { return was_cut_; }

 private:
  bool was_cut_ = false;
  // The next iteration begins with the client after this index.
  std::size_t first_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_INTAKE_RING_VISITS_H_
