// SPDX-License-Identifier: Apache-2.0
// The boards: sizes, and the MIG profiles with the positions that an instance may take.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_NVML_BOARDS_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_NVML_BOARDS_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace gpushared::testing::fake_nvml {

struct Profile {
  std::string_view name;
  unsigned number = 0;  // Identifies the profile in NVML calls.
  unsigned id = 0;
  unsigned memory_mib = 0;
  unsigned count_max = 0;
  unsigned multiprocessors = 0;
  unsigned slices = 0;  // Memory slices, of the 8 (A30: 4) of a board.
  std::span<const unsigned> starts;

  unsigned compute_slices() const { return static_cast<unsigned>(name[0] - '0'); }
};

// A size of the compute instances that a GPU instance can contain.
struct ComputeProfile {
  unsigned number = 0;  // Identifies the profile in NVML calls; also its id.
  unsigned slices = 0;
  std::vector<unsigned> starts;
};
std::vector<ComputeProfile> GetComputeProfiles(const Profile& profile);

struct Board {
  std::string_view name;     // The board's name in the JSON text.
  std::string_view product;  // NVML's name.
  unsigned memory_mib = 0;
  unsigned multiprocessors = 0;
  unsigned cores = 0;
  int major = 0, minor = 0;  // Compute capability.
  unsigned instances_max = 0;
  unsigned model = 0;  // PCI device and vendor.
  std::span<const Profile> profiles;
};

// Returns null if the board does not exist.
const Board* FindBoard(std::string_view name);

}  // namespace gpushared::testing::fake_nvml

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_NVML_BOARDS_H_
