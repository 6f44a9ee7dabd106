// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/cost_model.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace gpushared::server {

namespace {

// A round of MurmurHash3's finaliser. It is bijective in each argument, and every input bit affects
// the product's upper half, which the shift folds into the lower half. This hash need not be
// cryptographic, because the keys of launches begin with the module's identity and the choice of
// samples begins with the secret, and both are unknown to clients.
std::uint64_t Mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0xff51afd7ed558ccdu;
  return hash ^ hash >> 33;
}

}  // namespace

std::uint64_t CostModel::ModuleIdentity(std::span<const std::byte> image, const Owner& owner,
                                        const HashSeed& seed) {
  const std::array<std::uint64_t, 3> words = {KeyedHash(image, seed), owner.uid,
                                              static_cast<std::uint64_t>(owner.isolation)};
  return KeyedHash(std::as_bytes(std::span(words)), seed);
}

std::uint64_t CostModel::LaunchKey(std::uint64_t module, const device::LaunchWork& work) {
  std::uint64_t key = Mix(module, work.kernel);
  key = Mix(key, std::uint64_t{work.grid.x} << 32 | work.grid.y);
  key = Mix(key, std::uint64_t{work.grid.z} << 32 | work.dynamic_shared_bytes);
  return Mix(key,
             std::uint64_t{work.block.x} << 32 | std::uint64_t{work.block.y} << 16 | work.block.z);
}

std::uint64_t CostModel::KernelKey(std::uint64_t module, const device::LaunchWork& work) {
  return Mix(Mix(module, work.kernel),
             std::uint64_t{work.block.x} << 32 | std::uint64_t{work.block.y} << 16 | work.block.z);
}

std::size_t CostModel::CopyKind(CommandKind kind) {
  return static_cast<std::size_t>(kind) - static_cast<std::size_t>(CommandKind::kCopyToDevice);
}

scheduler::Duration CostModel::Predict(const CommandSlot& command) const {
  const scheduler::Duration whole =
      command.kind == CommandKind::kGraph ? command.nodes_predicted : PredictWhole(command);
  // A command that has outlived its prediction is expected to take as long again as so far.
  if (command.charged > whole) return command.charged;
  if (command.units_done == 0) return whole;
  return scheduler::Predictor::Remaining(whole, command.units_done, command.units);
}

bool CostModel::WantsSample(std::uint64_t session, const CommandSlot& command) const {
  if (command.kind == CommandKind::kGraph) return !command.is_part_of_graph();
  return IsSampled(session, command.sequence) || !KnowsWell(command);
}

bool CostModel::KnowsWell(const CommandSlot& command) const {
  if (command.kind == CommandKind::kLaunch) return launches_.KnowsWell(FormKey(command));
  return CopiesLike(command).size() == kCopySamplesKept;
}

bool CostModel::IsSampled(std::uint64_t session, std::uint64_t number) const {
  static_assert(kSampleEvery == 16, "four bits of a hash");
  // The last round spreads the bits of the secret, which the previous round leaves in the lower
  // half.
  const std::uint64_t hash =
      Mix(Mix(Mix(Mix(secret_[0], session), number / kSampleEvery), secret_[1]), 0);
  return number % kSampleEvery == hash >> 60;
}

void CostModel::AddSample(const CommandSlot& command, scheduler::Duration measured) {
  const scheduler::Duration sample = std::max(measured, scheduler::Duration(1));
  const scheduler::Duration predicted = Store(command, sample);
  if (predicted > scheduler::Duration::zero()) Judge(predicted, sample);
}

void CostModel::AddBound(const CommandSlot& command, scheduler::Duration measured) {
  const scheduler::Duration predicted = PredictWhole(command);
  const bool is_own_charge = command.kind == CommandKind::kLaunch && command.is_among_own;
  if (is_own_charge && std::min(command.charged, measured) > predicted) {
    Store(command, std::min(command.charged, measured));
    return;
  }
  // A command that exceeds its prediction while others run is stored as a sample of exactly the
  // predicted time: if such commands were dropped, only short ones would remain, and the prediction
  // would sink to the minimum.
  if (measured >= predicted && !HasSample(command)) return;
  Store(command, std::clamp(measured, scheduler::Duration(1), predicted));
}

scheduler::Duration CostModel::Store(const CommandSlot& command, scheduler::Duration sample) {
  if (command.kind == CommandKind::kLaunch) {
    return launches_.AddSample(FormKey(command), sample, GetGrid(command));
  }
  CopiesLike(command).Add(sample);
  return {};
}

std::optional<scheduler::Duration> CostModel::LaunchBubble() const {
  if (launch_bubbles_.size() < kLaunchBubblesMin) return {};
  return launch_bubbles_.Quantile(90);
}

void CostModel::Learn(std::span<const scheduler::KnownCost> costs) {
  for (const scheduler::KnownCost& cost : costs) {
    // Enough samples to compare the forms, and few enough to be displaced soon.
    const auto count = std::clamp<std::size_t>(cost.samples, 1, kFormSamplesMin);
    for (std::size_t i = 0; i < count; ++i) {
      launches_.AddSample(cost.key, cost.predicted, cost.grid);
    }
  }
}

void CostModel::Judge(scheduler::Duration predicted, scheduler::Duration measured) {
  ++accuracy_.predictions;
  if (measured > predicted) ++accuracy_.exceeded;
  const std::int64_t off = std::abs((predicted - measured).count());
  accuracy_.error_permille.Add(static_cast<std::uint64_t>(static_cast<double>(off) * 1000.0 /
                                                          static_cast<double>(measured.count())));
}

}  // namespace gpushared::server
