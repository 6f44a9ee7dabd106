// SPDX-License-Identifier: Apache-2.0
// How long a command will take, from how long it took.

#ifndef GPUSHARED_SCHEDULER_PREDICTOR_H_
#define GPUSHARED_SCHEDULER_PREDICTOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/recent_samples.h"
#include "scheduler/types.h"

namespace gpushared::scheduler {

// A kernel, and how large a grid of it is.
struct KernelGrid {
  std::uint64_t kernel = 0;
  std::uint64_t blocks = 0;  // 0: nothing is known of either.
};

// Knowledge about one key, to be handed to another predictor.
struct KnownCost {
  std::uint64_t key = 0;
  KernelGrid grid;
  Duration predicted{};
  std::uint64_t last_sample = 0;  // Ascending over all keys, among those of one predictor.
  std::uint32_t samples = 1;      // That it is known from; of those that are kept.
};

// The prediction is the 0.9 quantile of the last 19 measured times per key, or the largest while
// there are fewer. Few commands exceed it, which matters: a high-class client waits for those that
// do. And a single slow run long ago does not decide it for ever (see RecentSamples).
//
// The caller makes the key from everything that decides the duration: module, kernel, grid and
// block. It adds only samples of commands that ran whole and alone. A key without a sample is
// predicted from the latest sample of its kin, the same kernel in another grid. The larger grid
// is taken to run in waves of the smaller one, and fewer blocks are taken to run no shorter.
//
// The tables have a fixed size, so that clients cannot grow them. In a full table a new key
// replaces an old one, which falls back to the first guess. Only Known and KnownPart allocate.
//
// Confined to the thread that drives it.
class Predictor {
 public:
  static constexpr Duration kFirstGuess = std::chrono::milliseconds(1);
  static constexpr std::size_t kKeysMax = 4096;
  static constexpr std::size_t kSamplesKept = 19;
  static constexpr std::size_t kKnownParts = 64;

  Predictor();

  // For a command of `key`; kFirstGuess when neither it nor its kin has a sample.
  Duration Predict(std::uint64_t key, const KernelGrid& grid = {}) const;
  // By samples of the key itself; zero when there are none.
  Duration PredictKnown(std::uint64_t key) const {
    const Entry* const entry = Find(key);
    return entry == nullptr ? Duration{} : entry->predicted;
  }
  bool Knows(std::uint64_t key) const { return Find(key) != nullptr; }
  // Whether it has as many as are kept.
  bool KnowsWell(std::uint64_t key) const;
  // How many it has, of those that are kept, and their median: zero where there are none.
  struct Middle {
    std::size_t samples = 0;
    Duration median{};
  };
  Middle GetMiddle(std::uint64_t key) const;
  // Returns what the key's own samples predicted until now; zero when it had none.
  Duration AddSample(std::uint64_t key, Duration measured, const KernelGrid& grid = {});

  // All keys with samples, the one with the oldest last sample first. Another predictor that gets
  // them in this order, as one sample each, predicts the same.
  std::vector<KnownCost> Known() const;
  // The same in kKnownParts parts, each in no order, for a thread that may not be away for long.
  // A key that keeps its place is in one of them, also where samples are added in between.
  std::vector<KnownCost> KnownPart(std::size_t part) const;
  static void SortByAge(std::vector<KnownCost>& costs);
  std::uint64_t samples() const { return samples_; }  // Added so far.

  // The rest of a command that takes `whole` for `units`, after `units_done`.
  static Duration Remaining(Duration whole, std::uint64_t units_done, std::uint64_t units);

 private:
  // Four neighbours per set keep a look-up within a few cache lines.
  static constexpr std::size_t kWays = 4;
  static constexpr std::size_t kKinMax = 1024;
  struct Entry {
    std::uint64_t key = 0;
    Duration predicted{};  // Zero: free.
    KernelGrid grid;
    std::uint64_t used = 0;  // Order of last sample; the smallest is replaced.
    RecentSamples<kSamplesKept> samples;
  };
  // The latest sample of a kernel; one place per hash.
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
