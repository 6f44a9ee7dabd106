// SPDX-License-Identifier: Apache-2.0
// What other processes of a machine cost by themselves: the measure for storms of busy clients.
#include "tests/hostile/storms/storms.h"

namespace gpushared::storms {

void TakeCores(const Attacker& attacker) {
  constexpr std::uint64_t kStepsPerDeed = 1u << 20;
  volatile std::uint64_t step = 0;
  for (;;) {
    step = step + 1;
    if (step % kStepsPerDeed == 0) ++attacker.board.deeds;
  }
}

}  // namespace gpushared::storms
