// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_LOG_HISTOGRAM_H_
#define GPUSHARED_SERVER_WORKER_STATE_LOG_HISTOGRAM_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "ipc/wire/fields.h"

namespace gpushared::server {

// Histogram of durations with eight buckets per power of two, so a quantile is at most 12.5 % above
// the true value and never below it. Fixed size, no allocation.
//
// Thread-compatible value.
class LogHistogram {
 public:
  void Add(std::uint64_t ns) {
    ++counts_[GetBucket(ns)];
    ++total_;
  }

  std::uint64_t total() const { return total_; }

  void Visit(ipc::Fields& f) {
    f.Plain("counts", counts_);
    total_ = 0;
    for (const std::uint64_t count : counts_) total_ += count;
  }

  // Upper end of the bucket that holds the `fraction` quantile (0..1); 0 when empty.
  std::uint64_t Quantile(double fraction) const {
    if (total_ == 0) return 0;
    // Rank of the quantile, counted from 1 and rounded up.
    auto rank = static_cast<std::uint64_t>(fraction * static_cast<double>(total_));
    if (static_cast<double>(rank) < fraction * static_cast<double>(total_)) ++rank;
    if (rank == 0) rank = 1;
    std::uint64_t seen = 0;
    for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
      seen += counts_[bucket];
      if (seen >= rank) return UpperEnd(bucket);
    }
    return UpperEnd(kBuckets - 1);
  }

 private:
  static constexpr unsigned kStepBits = 3;  // Eight buckets per power of two.
  static constexpr std::size_t kSteps = std::size_t{1} << kStepBits;
  // Values below kSteps have one bucket each.
  static constexpr std::size_t kBuckets = (64 - kStepBits + 1) * kSteps;

  static std::size_t GetBucket(std::uint64_t value) {
    if (value < kSteps) return static_cast<std::size_t>(value);
    const auto power = static_cast<unsigned>(std::bit_width(value)) - 1;  // >= kStepBits
    const auto step = static_cast<std::size_t>(value >> (power - kStepBits)) & (kSteps - 1);
    return (power - kStepBits + 1) * kSteps + step;
  }

  static std::uint64_t UpperEnd(std::size_t bucket) {
    if (bucket < kSteps) return bucket;
    const auto power = static_cast<unsigned>(bucket / kSteps) + kStepBits - 1;
    const std::uint64_t step = bucket % kSteps;
    const std::uint64_t width = std::uint64_t{1} << (power - kStepBits);
    return ((kSteps + step) << (power - kStepBits)) + (width - 1);
  }

  std::array<std::uint64_t, kBuckets> counts_ = {};
  std::uint64_t total_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_LOG_HISTOGRAM_H_
