// SPDX-License-Identifier: Apache-2.0
// How a GPU in MIG mode can be cut: profiles, the places that an instance may take, and layouts.
// Values and pure functions; gpu_state.h fills them from NVML, boards.h without a GPU.

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

// The most that any board allows is 7.
inline constexpr std::size_t kInstancesMax = 16;
// Slices are the bits of a mask; boards have 4 or 8.
inline constexpr std::uint32_t kSlicesMax = 32;

// A size of instance that a board offers.
struct Profile {
  std::string name;      // "1g.5gb+me"
  std::uint32_t id = 0;  // NVML's, unique on the board.
  std::uint32_t count_max = 0;
  std::uint32_t memory_slices = 0;  // Slices of the board that an instance covers.
  std::uint32_t compute_slices = 0;
  std::uint64_t memory_mib = 0;
  std::uint32_t multiprocessors = 0;  // 0: unknown.
  std::vector<std::uint32_t> starts;  // The first slices that an instance may have.
};

struct Board {
  std::string name;
  std::uint32_t slices = 0;  // Memory slices.
  std::vector<Profile> profiles;

  // Null when the board has no such profile.
  const Profile* Find(std::uint32_t id) const;
  const Profile* Find(std::string_view name) const;
  std::string Names() const;  // "1g.5gb, 1g.5gb+me, ..."
};

// A GPU instance: what it is and where, but not its number, which the driver chooses.
struct Instance {
  std::uint32_t profile = 0;  // Its id.
  std::uint32_t start = 0;    // Its first slice.
  // Slices of each of its compute instances, the largest first. Each is a device for programs.
  std::vector<std::uint32_t> compute;

  friend auto operator<=>(const Instance&, const Instance&) = default;
};
using Layout = std::vector<Instance>;  // By start.

// So many instances of one kind, wherever they are.
struct Wanted {
  std::uint32_t profile = 0;
  std::vector<std::uint32_t> compute;
  std::uint32_t count = 1;
};

// "2g.10gb"; "1c+2c.3g.20gb" for one that is divided otherwise than into one compute instance.
std::string KindName(const Board& board, std::uint32_t profile,
                     const std::vector<std::uint32_t>& compute);
// "2g.10gb at 4"
std::string InstanceName(const Board& board, const Instance& instance);

// Whether instances may lie so. The rejection names the first that may not.
Status CheckLayout(const Board& board, const Layout& layout);

// Shows `visit` each layout that has exactly these instances, once, until it returns false. All are
// shown: the search leaves none out. Kinds are by profile and division, and stand in `wanted` once.
void ForEachLayout(const Board& board, const std::vector<Wanted>& wanted,
                   const std::function<bool(const Layout& layout)>& visit);

// What a GPU instance of so many compute slices is to its compute instances: a board whose profiles
// have the number of slices as id.
Board ComputeBoard(std::uint32_t compute_slices);

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_LAYOUT_H_
