// SPDX-License-Identifier: Apache-2.0
// Partitioning of a GPU in MIG mode: profiles, possible placements of instances, and layouts.
// Values and pure functions. gpu_reader.h fills the values from NVML, and boards.h without a GPU.

#ifndef GPUSHARED_SERVER_TOOLS_MIG_LAYOUT_H_
#define GPUSHARED_SERVER_TOOLS_MIG_LAYOUT_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/status.h"

namespace gpushared::mig {

// Limit of instances; no board allows more than 7.
inline constexpr std::size_t kInstancesMax = 16;
// Slices are the bits of a mask; boards have 4 or 8.
inline constexpr std::uint32_t kSlicesMax = 32;

// An instance size that a board offers.
struct Profile {
  std::string name;      // "1g.5gb+me".
  std::uint32_t id = 0;  // NVML's id, unique on the board.
  std::uint32_t count_max = 0;
  std::uint32_t memory_slices = 0;  // Slices of the board that an instance covers.
  std::uint32_t compute_slices = 0;
  std::uint64_t memory_mib = 0;
  std::uint32_t multiprocessors = 0;  // 0 if unknown.
  std::vector<std::uint32_t> starts;  // Possible first slices of an instance.
};

struct Board {
  std::string name;
  std::uint32_t slices = 0;  // Number of memory slices.
  std::vector<Profile> profiles;

  // Returns null if the board has no such profile.
  const Profile* Find(std::uint32_t id) const;
  const Profile* Find(std::string_view name) const;
  std::string Names() const;  // Returns the names of all profiles: "1g.5gb, 1g.5gb+me, ...".
};

// Profile and placement of a GPU instance. The driver assigns its number.
struct Instance {
  std::uint32_t profile = 0;  // Profile id.
  std::uint32_t start = 0;    // First slice.
  // Number of slices of each compute instance, largest first. Programs see each compute instance as
  // a device.
  std::vector<std::uint32_t> compute;

  friend auto operator<=>(const Instance&, const Instance&) = default;
};
using Layout = std::vector<Instance>;  // Ordered by start.

// A number of instances of one kind, without placements.
struct Wanted {
  std::uint32_t profile = 0;
  std::vector<std::uint32_t> compute;
  std::uint32_t count = 1;
};

// Returns a name such as "2g.10gb", or "1c+2c.3g.20gb" for several compute instances.
std::string KindName(const Board& board, std::uint32_t profile,
                     const std::vector<std::uint32_t>& compute);
// Returns a name with the placement, such as "2g.10gb at 4".
std::string InstanceName(const Board& board, const Instance& instance);

// Checks the placements. The rejection names the first invalid one.
Status CheckLayout(const Board& board, const Layout& layout);

// Calls `visit` once for each layout with exactly these instances, until `visit` returns false. The
// search is exhaustive. Kinds are distinguished by profile and division, and must be unique in
// `wanted`.
void ForEachLayout(const Board& board, const std::vector<Wanted>& wanted,
                   const std::function<bool(const Layout& layout)>& visit);

// Models a GPU instance with that many compute slices as a board for compute instances. The id of
// each profile is its number of slices.
Board ComputeBoard(std::uint32_t compute_slices);

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_LAYOUT_H_
