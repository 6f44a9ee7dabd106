// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_RECENT_SAMPLES_H_
#define GPUSHARED_SCHEDULER_RECENT_SAMPLES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "scheduler/types.h"

namespace gpushared::scheduler {

// Holds the last kCapacity samples of a duration, and computes their quantiles.
//
// The k-th smallest of n samples estimates the k/(n + 1) quantile without bias for any
// distribution. Source: Hyndman and Fan, Sample Quantiles in Statistical Packages, The American
// Statistician 50(4), 1996, definition 6. A window of samples has two properties: after kCapacity
// more samples nothing remains of former behaviour, and one outlier of 19 does not affect their 0.9
// quantile. No estimator of constant size with exponential decay has both.
//
// Thread-compatible value; never allocates.
template <std::size_t kCapacity>
class RecentSamples {
 public:
  void Add(Duration sample) {
    samples_[next_] = sample;
    next_ = (next_ + 1) % kCapacity;
    size_ = std::min(size_ + 1, kCapacity);
  }
  // Replaces the sample that was added last. Requires at least one sample.
  void ReplaceLast(Duration sample) { samples_[(next_ + kCapacity - 1) % kCapacity] = sample; }
  void Clear() { size_ = next_ = 0; }

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  // Returns the smallest sample that is at least the quantile percent/100; the largest if there are
  // too few samples for that quantile. Zero without samples.
  Duration Quantile(unsigned percent) const {
    if (size_ == 0) return {};
    const std::size_t rank = std::clamp<std::size_t>(((size_ + 1) * percent + 99) / 100, 1, size_);
    std::array<Duration, kCapacity> sorted = samples_;
    const auto place = sorted.begin() + static_cast<std::ptrdiff_t>(rank - 1);
    std::nth_element(sorted.begin(), place, sorted.begin() + static_cast<std::ptrdiff_t>(size_));
    return *place;
  }

  // Returns whether a quantile of these samples is unchanged after `next` is added, because `next`
  // and the sample that it replaces are on the same side of the quantile. Cheaper than computing
  // the quantile again; false when in doubt.
  bool KeepsQuantile(Duration quantile, Duration next) const {
    if (size_ < kCapacity) return false;
    const Duration replaced = samples_[next_];
    return replaced == next || (replaced < quantile && next <= quantile) ||
           (replaced > quantile && next >= quantile);
  }

  Duration Smallest() const {
    return empty() ? Duration{} : *std::min_element(samples_.begin(), end());
  }
  Duration Largest() const {
    return empty() ? Duration{} : *std::max_element(samples_.begin(), end());
  }

  // Returns the second largest sample, so that one outlier has no effect even among few samples.
  // Returns the only sample if there is just one.
  Duration LargestButOne() const {
    Duration largest{}, second{};
    for (const Duration sample : *this) {
      second = std::max(second, std::min(largest, sample));
      largest = std::max(largest, sample);
    }
    return size_ == 1 ? largest : second;
  }

  auto begin() const { return samples_.begin(); }
  auto end() const { return samples_.begin() + static_cast<std::ptrdiff_t>(size_); }

 private:
  std::array<Duration, kCapacity> samples_{};  // The first size_ entries are in use.
  std::size_t next_ = 0;
  std::size_t size_ = 0;
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_RECENT_SAMPLES_H_
