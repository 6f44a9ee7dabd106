// SPDX-License-Identifier: Apache-2.0
// How long a command will take, from how long it took.

#ifndef GPUSHARED_SCHEDULER_PREDICTOR_H_
#define GPUSHARED_SCHEDULER_PREDICTOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/types.h"

namespace gpushared::scheduler {

// Running maximum of the measured times per key. A maximum, because a low-class
// command that takes longer than predicted is what a high-class client waits for.
//
// The caller makes the key from all that decides the duration (module, kernel, grid,
// block) and brings only samples of commands that ran whole and alone. The table has
// a fixed size: when it is full, a new key takes the place of one that was there, so
// that clients cannot grow it; the one replaced falls back to the first guess.
//
// Confined to the thread that drives it.
class Predictor {
 public:
  static constexpr Duration kFirstGuess = std::chrono::milliseconds(1);
  static constexpr std::size_t kKeysMax = 4096;

  Predictor();

  // For a command of `key`; kFirstGuess before the first sample.
  Duration Predict(std::uint64_t key) const;
  void AddSample(std::uint64_t key, Duration measured);

  // What is left of a command that takes `whole` for `units`, after `units_done`.
  static Duration Remaining(Duration whole, std::uint64_t units_done, std::uint64_t units);

 private:
  // Four neighbours per set keep a look-up within two cache lines.
  static constexpr std::size_t kWays = 4;
  struct Entry {
    std::uint64_t key = 0;
    std::int64_t maximum_ns = 0;  // 0: free.
    std::uint64_t used = 0;       // Order of last sample; the smallest is replaced.
  };

  static std::size_t FirstOfSet(std::uint64_t key);

  std::vector<Entry> entries_;
  std::uint64_t samples_ = 0;
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_PREDICTOR_H_
