// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_TIMINGS_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_TIMINGS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "client_lib/drop_in/driver_types.h"
#include "client_lib/drop_in/gate/costs.h"

namespace gpushared::drop_in::gate {

// Measures the device time of single launches. Each is measured with two events of its context,
// which are recorded before and after the launch.
//
// Thread-safe, without locks.
class Timings {
 public:
  // A measurement in progress.
  struct Pair;

  explicit Timings(LaunchCosts& costs) : costs_(costs) {}

  // Called before and after a launch in `stream` of the calling thread's context. Begin returns
  // null if the launch cannot be measured; End accepts null. `code` is the result of the launch.
  Pair* Begin(LaunchKey key, StreamHandle stream);
  void End(Pair* pair, StreamHandle stream, Code code);
  // Destroys all events; called before contexts end.
  void DestroyEvents();

  struct Pair {
    enum class State : std::uint8_t { kFree, kTaken, kRecorded };
    std::atomic<State> state{State::kFree};
    ContextHandle context = nullptr;  // Context of the events; null if there are no events.
    EventHandle before = nullptr, after = nullptr;
    LaunchKey key = 0;
  };

 private:
  // Adds the times of the launches that have ended.
  void Collect();

  LaunchCosts& costs_;
  std::array<Pair, 16> pairs_;
};

}  // namespace gpushared::drop_in::gate

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_TIMINGS_H_
