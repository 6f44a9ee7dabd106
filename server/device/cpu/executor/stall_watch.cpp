// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/stall_watch.h"

#include <algorithm>
#include <cstddef>

namespace gpushared::device::executor {
namespace {

// Number of samples of the registers after which a launch can be considered stalled.
constexpr std::uint32_t kStallSamples = 10;
// Limit of the states between which a stalled launch may alternate. For example, a poll between two
// barriers has two.
constexpr std::size_t kStatesMax = 16;

}  // namespace

bool StallWatch::IsStalled(const std::vector<std::unique_ptr<ResidentBlock>>& blocks,
                           const LaunchState& state, const std::atomic<bool>& kill) {
  const Clock::time_point now = Clock::now();
  if (now < next_sample_) return false;
  next_sample_ = now + limit_ / kStallSamples;
  // Relaxed: the counter is only compared with its earlier values.
  std::uint64_t hash = state.progress.load(std::memory_order_relaxed);
  for (const auto& block : blocks) {
    // Checked for each block, because hashing the registers of all blocks may take long.
    if (kill.load(std::memory_order_relaxed)) return false;
    if (!block->is_finished()) hash = hash * 31 + block->StateHash();
  }
  if (std::find(seen_.begin(), seen_.end(), hash) == seen_.end()) {
    if (seen_.size() == kStatesMax) seen_.clear();
    seen_.push_back(hash);
    since_ = now;
  }
  return now - since_ >= limit_;
}

}  // namespace gpushared::device::executor
