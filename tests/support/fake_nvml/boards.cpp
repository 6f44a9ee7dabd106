// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_nvml/boards.h"

#include <algorithm>

namespace gpushared::testing::fake_nvml {
namespace {

constexpr unsigned kAnyOfSeven[] = {0, 1, 2, 3, 4, 5, 6};
constexpr unsigned kEvenOfSeven[] = {0, 2, 4, 6};
constexpr unsigned kPairs[] = {0, 2, 4};
constexpr unsigned kHalves[] = {0, 4};
constexpr unsigned kStart[] = {0};
constexpr unsigned kAnyOfFour[] = {0, 1, 2, 3};
constexpr unsigned kHalvesOfFour[] = {0, 2};

// Name, NVML's number, id, MiB, maximum count, multiprocessors, memory slices, starts. Sources:
// NVIDIA's MIG user guide, and nvidia-smi's output for the H100s. The H200's memory and two of its
// multiprocessor counts, and all values of the B200, are estimates based on the H100 because no
// source is available.
constexpr Profile kA30[] = {
    {"1g.6gb", 0, 14, 5949, 4, 14, 1, kAnyOfFour},
    {"1g.6gb+me", 7, 21, 5949, 1, 14, 1, kAnyOfFour},
    {"2g.12gb", 1, 5, 11970, 2, 28, 2, kHalvesOfFour},
    {"2g.12gb+me", 8, 6, 11970, 1, 28, 2, kHalvesOfFour},
    {"4g.24gb", 3, 0, 24002, 1, 56, 4, kStart},
};
constexpr Profile kA100x40[] = {
    {"1g.5gb", 0, 19, 4864, 7, 14, 1, kAnyOfSeven},
    {"1g.5gb+me", 7, 20, 4864, 1, 14, 1, kAnyOfSeven},
    {"1g.10gb", 9, 15, 9856, 4, 14, 2, kEvenOfSeven},
    {"2g.10gb", 1, 14, 9856, 3, 28, 2, kPairs},
    {"3g.20gb", 2, 9, 19968, 2, 42, 4, kHalves},
    {"4g.20gb", 3, 5, 19968, 1, 56, 4, kStart},
    {"7g.40gb", 4, 0, 40192, 1, 98, 8, kStart},
};
constexpr Profile kA100x80[] = {
    {"1g.10gb", 0, 19, 9856, 7, 14, 1, kAnyOfSeven},
    {"1g.10gb+me", 7, 20, 9856, 1, 14, 1, kAnyOfSeven},
    {"1g.20gb", 9, 15, 19968, 4, 14, 2, kEvenOfSeven},
    {"2g.20gb", 1, 14, 19968, 3, 28, 2, kPairs},
    {"3g.40gb", 2, 9, 40192, 2, 42, 4, kHalves},
    {"4g.40gb", 3, 5, 40192, 1, 56, 4, kStart},
    {"7g.80gb", 4, 0, 80384, 1, 98, 8, kStart},
};
constexpr Profile kH100[] = {
    {"1g.10gb", 0, 19, 9984, 7, 16, 1, kAnyOfSeven},
    {"1g.10gb+me", 7, 20, 9984, 1, 16, 1, kAnyOfSeven},
    {"1g.20gb", 9, 15, 20091, 4, 26, 2, kEvenOfSeven},
    {"2g.20gb", 1, 14, 20091, 3, 32, 2, kPairs},
    {"3g.40gb", 2, 9, 40448, 2, 60, 4, kHalves},
    {"4g.40gb", 3, 5, 40448, 1, 64, 4, kStart},
    {"7g.80gb", 4, 0, 81152, 1, 132, 8, kStart},
};
constexpr Profile kH200[] = {
    {"1g.18gb", 0, 19, 16384, 7, 16, 1, kAnyOfSeven},
    {"1g.18gb+me", 7, 20, 16384, 1, 16, 1, kAnyOfSeven},
    {"1g.35gb", 9, 15, 33280, 4, 26, 2, kEvenOfSeven},
    {"2g.35gb", 1, 14, 33280, 3, 32, 2, kPairs},
    {"3g.71gb", 2, 9, 71168, 2, 60, 4, kHalves},
    {"4g.71gb", 3, 5, 71168, 1, 64, 4, kStart},
    {"7g.141gb", 4, 0, 143360, 1, 132, 8, kStart},
};
constexpr Profile kH100x96[] = {
    {"1g.12gb", 0, 19, 11264, 7, 16, 1, kAnyOfSeven},
    {"1g.12gb+me", 7, 20, 11264, 1, 16, 1, kAnyOfSeven},
    {"1g.24gb", 9, 15, 23552, 4, 26, 2, kEvenOfSeven},
    {"2g.24gb", 1, 14, 23552, 3, 32, 2, kPairs},
    {"3g.48gb", 2, 9, 47616, 2, 60, 4, kHalves},
    {"4g.48gb", 3, 5, 47616, 1, 64, 4, kStart},
    {"7g.96gb", 4, 0, 95232, 1, 132, 8, kStart},
};
constexpr Profile kB200[] = {
    {"1g.23gb", 0, 19, 20992, 7, 18, 1, kAnyOfSeven},
    {"1g.23gb+me", 7, 20, 20992, 1, 18, 1, kAnyOfSeven},
    {"1g.45gb", 9, 15, 44032, 4, 30, 2, kEvenOfSeven},
    {"2g.45gb", 1, 14, 44032, 3, 36, 2, kPairs},
    {"3g.90gb", 2, 9, 89088, 2, 68, 4, kHalves},
    {"4g.90gb", 3, 5, 89088, 1, 72, 4, kStart},
    {"7g.180gb", 4, 0, 181248, 1, 148, 8, kStart},
};
// The models are those of NVIDIA/mig-parted's default configuration.
constexpr Board kBoards[] = {
    {"A30", "NVIDIA A30", 24576, 56, 3584, 8, 0, 4, 0x20B710DE, kA30},
    {"A100-40", "NVIDIA A100-SXM4-40GB", 40960, 108, 6912, 8, 0, 7, 0x20B010DE, kA100x40},
    {"A100-80", "NVIDIA A100-SXM4-80GB", 81920, 108, 6912, 8, 0, 7, 0x20B210DE, kA100x80},
    {"H100", "NVIDIA H100 80GB HBM3", 81559, 132, 16896, 9, 0, 7, 0x233010DE, kH100},
    {"H100-96", "NVIDIA GH200 480GB", 97871, 132, 16896, 9, 0, 7, 0x234210DE, kH100x96},
    {"H200", "NVIDIA H200", 143771, 132, 16896, 9, 0, 7, 0x233510DE, kH200},
    {"B200", "NVIDIA B200", 183359, 148, 18944, 10, 0, 7, 0x290110DE, kB200},
};

}  // namespace

const Board* FindBoard(std::string_view name) {
  const auto* found = std::ranges::find(kBoards, name, &Board::name);
  return found == std::end(kBoards) ? nullptr : found;
}

std::vector<ComputeProfile> GetComputeProfiles(const Profile& profile) {
  // The compute profile of one slice has a separate number if the slice has twice the memory.
  constexpr unsigned kOneSlice = 0, kOneSliceAlone = 7, kTwice = 9;
  switch (profile.compute_slices()) {
    case 1:
      return {{profile.number == kTwice ? kOneSliceAlone : kOneSlice, 1, {0}}};
    case 2:
      return {{0, 1, {0, 1}}, {1, 2, {0}}};
    case 3:
      return {{0, 1, {0, 1, 2}}, {1, 2, {0}}, {2, 3, {0}}};
    case 4:
      return {{0, 1, {0, 1, 2, 3}}, {1, 2, {0, 2}}, {3, 4, {0}}};
    default:
      return {{0, 1, {0, 1, 2, 3, 4, 5, 6}},
              {1, 2, {0, 2, 4}},
              {2, 3, {0, 4}},
              {3, 4, {0}},
              {4, 7, {0}}};
  }
}

}  // namespace gpushared::testing::fake_nvml
