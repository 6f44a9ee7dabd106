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

// Measures single launches on the device, each with two events of the launch's context, which the
// driver records around it.
//
// Thread-safe, without locks.
class Timings {
 public:
  // A measurement in progress. Null if no events are free.
  struct Pair;

  explicit Timings(LaunchCosts& costs) : costs_(costs) {}

  // Called before and after a launch in `stream` of the calling thread's context. `code` is the
  // driver's answer to the launch.
  Pair* Begin(LaunchKey key, StreamHandle stream);
  void End(Pair* pair, StreamHandle stream, Code code);
  // Destroys all events; called before contexts end.
  void DestroyEvents();

  struct Pair {
    enum class State : std::uint8_t { kFree, kTaken, kRecorded };
    std::atomic<State> state{State::kFree};
    ContextHandle context = nullptr;  // Of the events; the fields below have meaning only with one.
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
