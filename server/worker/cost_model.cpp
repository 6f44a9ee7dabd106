// SPDX-License-Identifier: Apache-2.0
#include "server/worker/cost_model.h"

#include <algorithm>
#include <bit>

namespace gpushared::server {

namespace {

// A round of MurmurHash3's finaliser: bijective in each argument, and every input bit reaches
// the upper half, which the next round folds down.
std::uint64_t Mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0xff51afd7ed558ccdu;
  return hash ^ hash >> 33;
}

}  // namespace

std::uint64_t CostModel::LaunchKey(std::uint64_t module_serial, const device::LaunchWork& work) {
  std::uint64_t key = Mix(module_serial, work.kernel);
  key = Mix(key, std::uint64_t{work.grid.x} << 32 | work.grid.y);
  key = Mix(key, std::uint64_t{work.grid.z} << 32 | work.dynamic_shared_bytes);
  return Mix(key,
             std::uint64_t{work.block.x} << 32 | std::uint64_t{work.block.y} << 16 | work.block.z);
}

std::size_t CostModel::CopyKind(CommandKind kind) {
  return static_cast<std::size_t>(kind) - static_cast<std::size_t>(CommandKind::kCopyToDevice);
}

scheduler::Duration CostModel::Predict(const CommandSlot& command) const {
  scheduler::Duration whole{};
  if (command.kind == CommandKind::kLaunch) {
    whole = launches_.Predict(command.cost_key);
  } else {
    const std::int64_t seen =
        copies_[CopyKind(command.kind)][static_cast<std::size_t>(std::bit_width(command.bytes))];
    // A copy that was never seen: 1 GB/s, which all devices of interest exceed.
    const auto guess = static_cast<std::int64_t>(
        std::min<std::uint64_t>(command.bytes, std::uint64_t{1} << 40) + 10'000);
    whole = scheduler::Duration(seen > 0 ? seen : guess);
  }
  if (command.units_done == 0) return whole;
  return scheduler::Predictor::Remaining(whole, command.units_done, command.units);
}

void CostModel::AddSample(const CommandSlot& command, scheduler::Duration measured) {
  const scheduler::Duration sample = std::max(measured, scheduler::Duration(1));
  if (command.kind == CommandKind::kLaunch) {
    launches_.AddSample(command.cost_key, sample);
    return;
  }
  std::int64_t& seen =
      copies_[CopyKind(command.kind)][static_cast<std::size_t>(std::bit_width(command.bytes))];
  seen = std::max(seen, static_cast<std::int64_t>(sample.count()));
}

}  // namespace gpushared::server
