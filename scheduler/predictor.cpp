// SPDX-License-Identifier: Apache-2.0
#include "scheduler/predictor.h"

#include <algorithm>
#include <span>

namespace gpushared::scheduler {

namespace {

__extension__ using Wide = unsigned __int128;

}  // namespace

Predictor::Predictor() : entries_(kKeysMax), relatives_(kKinMax) {}

std::size_t Predictor::FirstOfSet(std::uint64_t key) {
  constexpr std::size_t kSets = kKeysMax / kWays;
  return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15u) >> 32) % kSets * kWays;
}

std::size_t Predictor::PlaceOfKin(std::uint64_t kernel) {
  return static_cast<std::size_t>((kernel * 0x9e3779b97f4a7c15u) >> 32) % kKinMax;
}

const Predictor::Entry* Predictor::Find(std::uint64_t key) const {
  for (const Entry& entry : std::span(entries_).subspan(FirstOfSet(key), kWays)) {
    if (entry.key == key && entry.predicted > Duration::zero()) return &entry;
  }
  return nullptr;
}

bool Predictor::KnowsWell(std::uint64_t key) const {
  const Entry* const entry = Find(key);
  return entry != nullptr && entry->samples.size() == kSamplesKept;
}

Predictor::Middle Predictor::GetMiddle(std::uint64_t key) const {
  const Entry* const entry = Find(key);
  if (entry == nullptr) return {};
  return {.samples = entry->samples.size(), .median = entry->samples.Quantile(50)};
}

Duration Predictor::Predict(std::uint64_t key, const KernelGrid& grid) const {
  if (const Entry* const entry = Find(key)) return entry->predicted;
  const Relative& relative = relatives_[PlaceOfKin(grid.kernel)];
  if (grid.blocks == 0 || relative.grid.blocks == 0 || relative.grid.kernel != grid.kernel) {
    return kFirstGuess;
  }
  const std::uint64_t waves = (grid.blocks - 1) / relative.grid.blocks + 1;
  const Wide whole = Wide{static_cast<std::uint64_t>(relative.predicted.count())} * waves;
  return Duration(static_cast<Duration::rep>(
      std::min(whole, Wide{static_cast<std::uint64_t>(Duration(kCommandTimeMax).count())})));
}

Duration Predictor::AddSample(std::uint64_t key, Duration measured, const KernelGrid& grid) {
  ++samples_;
  Entry* found = nullptr;
  for (Entry& entry : std::span(entries_).subspan(FirstOfSet(key), kWays)) {
    if (entry.key == key && entry.predicted > Duration::zero()) {
      found = &entry;
      break;
    }
    if (found == nullptr || entry.used < found->used) found = &entry;
  }
  Duration before = found->predicted;
  if (found->key != key || before == Duration::zero()) [[unlikely]] {
    before = Duration::zero();
    found->key = key;
    found->samples.Clear();
  }
  found->used = samples_;
  found->grid = grid;
  const Duration sample = std::clamp(measured, Duration(1), Duration(kCommandTimeMax));
  const bool is_known = found->samples.KeepsQuantile(found->predicted, sample);
  found->samples.Add(sample);
  if (!is_known) found->predicted = found->samples.Quantile(90);
  if (grid.blocks > 0) relatives_[PlaceOfKin(grid.kernel)] = {grid, found->predicted};
  return before;
}

std::vector<KnownCost> Predictor::Known() const {
  std::vector<KnownCost> known;
  for (std::size_t part = 0; part < kKnownParts; ++part) {
    const std::vector<KnownCost> more = KnownPart(part);
    known.insert(known.end(), more.begin(), more.end());
  }
  SortByAge(known);
  return known;
}

std::vector<KnownCost> Predictor::KnownPart(std::size_t part) const {
  constexpr std::size_t kPlaces = kKeysMax / kKnownParts;
  static_assert(kPlaces % kWays == 0, "a set is in one part");
  std::vector<KnownCost> known;
  known.reserve(kPlaces);
  for (const Entry& entry : std::span(entries_).subspan(part * kPlaces, kPlaces)) {
    if (entry.predicted == Duration::zero()) continue;
    known.push_back({.key = entry.key,
                     .grid = entry.grid,
                     .predicted = entry.predicted,
                     .last_sample = entry.used,
                     .samples = static_cast<std::uint32_t>(entry.samples.size())});
  }
  return known;
}

void Predictor::SortByAge(std::vector<KnownCost>& costs) {
  std::ranges::sort(costs, {}, &KnownCost::last_sample);
}

Duration Predictor::Remaining(Duration whole, std::uint64_t units_done, std::uint64_t units) {
  if (units == 0 || units_done >= units) return Duration::zero();
  const Wide part = Wide{static_cast<std::uint64_t>(std::max(whole, Duration::zero()).count())} *
                    (units - units_done) / units;
  return Duration(static_cast<Duration::rep>(part));
}

}  // namespace gpushared::scheduler
