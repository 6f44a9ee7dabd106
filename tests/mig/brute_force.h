// SPDX-License-Identifier: Apache-2.0
// All layouts of a board, found without the solver: every set of (profile, start) that neither
// overlaps nor exceeds the board's number of a profile.

#ifndef GPUSHARED_TESTS_MIG_BRUTE_FORCE_H_
#define GPUSHARED_TESTS_MIG_BRUTE_FORCE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "server/tools/mig/layout.h"

namespace gpushared::mig {

using Counts = std::map<std::uint32_t, std::uint32_t>;  // By profile id.

inline Counts GetCounts(const Layout& layout) {
  Counts counts;
  for (const Instance& instance : layout) ++counts[instance.profile];
  return counts;
}

inline std::vector<Layout> AllLayouts(const Board& board) {
  std::vector<Instance> places;
  for (const Profile& profile : board.profiles) {
    for (const std::uint32_t start : profile.starts) {
      places.push_back(
          {.profile = profile.id, .start = start, .compute = {profile.compute_slices}});
    }
  }
  std::vector<Layout> layouts = {{}};
  for (const Instance& place : places) {
    const Profile& profile = *board.Find(place.profile);
    const std::size_t known = layouts.size();
    for (std::size_t i = 0; i < known; ++i) {
      std::uint32_t same = 0;
      bool overlaps = false;
      for (const Instance& other : layouts[i]) {
        const std::uint32_t others_end = other.start + board.Find(other.profile)->memory_slices;
        overlaps = overlaps ||
                   (place.start < others_end && other.start < place.start + profile.memory_slices);
        same += other.profile == place.profile ? 1 : 0;
      }
      if (overlaps || same == profile.count_max) continue;
      Layout larger = layouts[i];
      larger.push_back(place);
      std::ranges::sort(larger, {}, &Instance::start);
      layouts.push_back(std::move(larger));
    }
  }
  std::ranges::sort(layouts);
  return layouts;
}

inline std::vector<Wanted> GetWanted(const Board& board, const Counts& counts) {
  std::vector<Wanted> wanted;
  for (const auto& [profile, count] : counts) {
    wanted.push_back(
        {.profile = profile, .compute = {board.Find(profile)->compute_slices}, .count = count});
  }
  return wanted;
}

}  // namespace gpushared::mig

#endif  // GPUSHARED_TESTS_MIG_BRUTE_FORCE_H_
