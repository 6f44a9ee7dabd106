// SPDX-License-Identifier: Apache-2.0
// Predicts a command's device time from earlier measurements.

#ifndef GPUSHARED_SCHEDULER_PREDICTOR_H_
#define GPUSHARED_SCHEDULER_PREDICTOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/recent_samples.h"
#include "scheduler/types.h"

namespace gpushared::scheduler {

// A kernel, and the size of its grid.
struct KernelGrid {
  std::uint64_t kernel = 0;
  std::uint64_t blocks = 0;  // 0 if unknown.
};

// Knowledge about one key, for transfer to another predictor.
struct KnownCost {
  std::uint64_t key = 0;
  KernelGrid grid;
  Duration predicted{};
  // Order of the last sample among those of all keys of one predictor.
  std::uint64_t last_sample = 0;
  std::uint32_t samples = 1;  // Number of retained samples.
};

// Predicts the 0.9 quantile of the last 19 measured times per key, or the largest while there are
// fewer. Few commands exceed it, which matters because a high-class client waits for those that do.
// A single slow run does not affect it permanently (see RecentSamples).
//
// The caller derives the key from everything that determines the duration: module, kernel, grid and
// block. It adds only samples of commands that ran whole and alone. A key without samples falls
// back to the latest sample of the same kernel with a different grid: a larger grid is assumed to
// run in waves of the sampled one, and a smaller grid to take as long.
//
// The tables have a fixed size, so that clients cannot make them grow. In a full set a new key
// replaces the one whose last sample is the oldest. The replaced key is then predicted like a key
// without samples. Only Known and KnownPart allocate.
//
// Confined to the thread that drives it.
class Predictor {
 public:
  static constexpr Duration kFirstGuess = std::chrono::milliseconds(1);
  static constexpr std::size_t kKeysMax = 4096;
  static constexpr std::size_t kSamplesKept = 19;
  static constexpr std::size_t kKnownParts = 64;

  Predictor();

  // Returns the prediction for `key`; kFirstGuess if neither the key nor its kernel has a sample.
  Duration Predict(std::uint64_t key, const KernelGrid& grid = {}) const;
  // Returns the prediction from samples of the key itself; zero without any.
  Duration PredictKnown(std::uint64_t key) const {
    const Entry* const entry = Find(key);
    return entry == nullptr ? Duration{} : entry->predicted;
  }
  bool Knows(std::uint64_t key) const { return Find(key) != nullptr; }
  // Returns whether the key has kSamplesKept samples, the most that are retained.
  bool KnowsWell(std::uint64_t key) const;
  // Number of retained samples of a key, and their median; both zero without samples.
  struct Middle {
    std::size_t samples = 0;
    Duration median{};
  };
  Middle GetMiddle(std::uint64_t key) const;
  // Returns the key's own prediction before this sample; zero if it had none.
  Duration AddSample(std::uint64_t key, Duration measured, const KernelGrid& grid = {});

  // Returns all keys with samples, in ascending order of their last sample. Another predictor that
  // receives them in this order, as one sample each, makes the same predictions.
  std::vector<KnownCost> Known() const;
  // Returns one of kKnownParts parts of the list that Known returns, unordered, for a thread that
  // must not be busy for long. A key that is not replaced is in exactly one part, even if samples
  // are added between the calls.
  std::vector<KnownCost> KnownPart(std::size_t part) const;
  static void SortByAge(std::vector<KnownCost>& costs);
  std::uint64_t samples() const { return samples_; }  // Total number of samples added.

  // Returns the remaining time of a command that takes `whole` for `units`, after `units_done`.
  static Duration Remaining(Duration whole, std::uint64_t units_done, std::uint64_t units);

 private:
  // Four entries per set keep a lookup within a few cache lines.
  static constexpr std::size_t kWays = 4;
  static constexpr std::size_t kKinMax = 1024;
  struct Entry {
    std::uint64_t key = 0;
    Duration predicted{};  // Zero if the entry is unused.
    KernelGrid grid;
    // Order of the last sample; the entry with the smallest value is replaced.
    std::uint64_t used = 0;
    RecentSamples<kSamplesKept> samples;
  };
  // The latest sample of a kernel; one entry per hash.
  struct Relative {
    KernelGrid grid;
    Duration predicted{};
  };

  static std::size_t FirstOfSet(std::uint64_t key);
  static std::size_t PlaceOfKin(std::uint64_t kernel);
  const Entry* Find(std::uint64_t key) const;

  std::vector<Entry> entries_;
  std::vector<Relative> relatives_;
  std::uint64_t samples_ = 0;
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_PREDICTOR_H_
