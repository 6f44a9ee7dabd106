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

// Name, id, MiB, most, multiprocessors, memory slices, starts. Sources: NVIDIA's MIG user guide,
// and nvidia-smi's output for the H100. The H200's memory and two of its multiprocessor counts are
// estimates after the H100's, for want of a source.
constexpr Profile kA30[] = {
    {"1g.6gb", 14, 5949, 4, 14, 1, kAnyOfFour},
    {"1g.6gb+me", 21, 5949, 1, 14, 1, kAnyOfFour},
    {"2g.12gb", 5, 11970, 2, 28, 2, kHalvesOfFour},
    {"2g.12gb+me", 6, 11970, 1, 28, 2, kHalvesOfFour},
    {"4g.24gb", 0, 24002, 1, 56, 4, kStart},
};
constexpr Profile kA100x40[] = {
    {"1g.5gb", 19, 4864, 7, 14, 1, kAnyOfSeven},   {"1g.5gb+me", 20, 4864, 1, 14, 1, kAnyOfSeven},
    {"1g.10gb", 15, 9856, 4, 14, 2, kEvenOfSeven}, {"2g.10gb", 14, 9856, 3, 28, 2, kPairs},
    {"3g.20gb", 9, 19968, 2, 42, 4, kHalves},      {"4g.20gb", 5, 19968, 1, 56, 4, kStart},
    {"7g.40gb", 0, 40192, 1, 98, 8, kStart},
};
constexpr Profile kA100x80[] = {
    {"1g.10gb", 19, 9856, 7, 14, 1, kAnyOfSeven},   {"1g.10gb+me", 20, 9856, 1, 14, 1, kAnyOfSeven},
    {"1g.20gb", 15, 19968, 4, 14, 2, kEvenOfSeven}, {"2g.20gb", 14, 19968, 3, 28, 2, kPairs},
    {"3g.40gb", 9, 40192, 2, 42, 4, kHalves},       {"4g.40gb", 5, 40192, 1, 56, 4, kStart},
    {"7g.80gb", 0, 80384, 1, 98, 8, kStart},
};
constexpr Profile kH100[] = {
    {"1g.10gb", 19, 9984, 7, 16, 1, kAnyOfSeven},   {"1g.10gb+me", 20, 9984, 1, 16, 1, kAnyOfSeven},
    {"1g.20gb", 15, 20091, 4, 26, 2, kEvenOfSeven}, {"2g.20gb", 14, 20091, 3, 32, 2, kPairs},
    {"3g.40gb", 9, 40448, 2, 60, 4, kHalves},       {"4g.40gb", 5, 40448, 1, 64, 4, kStart},
    {"7g.80gb", 0, 81152, 1, 132, 8, kStart},
};
constexpr Profile kH200[] = {
    {"1g.18gb", 19, 16384, 7, 16, 1, kAnyOfSeven},
    {"1g.18gb+me", 20, 16384, 1, 16, 1, kAnyOfSeven},
    {"1g.35gb", 15, 33280, 4, 26, 2, kEvenOfSeven},
    {"2g.35gb", 14, 33280, 3, 32, 2, kPairs},
    {"3g.71gb", 9, 71168, 2, 60, 4, kHalves},
    {"4g.71gb", 5, 71168, 1, 64, 4, kStart},
    {"7g.141gb", 0, 143360, 1, 132, 8, kStart},
};
constexpr Board kBoards[] = {
    {"A30", "NVIDIA A30", 24576, 56, 3584, 8, 0, 4, kA30},
    {"A100-40", "NVIDIA A100-SXM4-40GB", 40960, 108, 6912, 8, 0, 7, kA100x40},
    {"A100-80", "NVIDIA A100-SXM4-80GB", 81920, 108, 6912, 8, 0, 7, kA100x80},
    {"H100", "NVIDIA H100 80GB HBM3", 81559, 132, 16896, 9, 0, 7, kH100},
    {"H200", "NVIDIA H200", 143771, 132, 16896, 9, 0, 7, kH200},
};

}  // namespace

const Board* FindBoard(std::string_view name) {
  const auto* found = std::ranges::find(kBoards, name, &Board::name);
  return found == std::end(kBoards) ? nullptr : found;
}

}  // namespace gpushared::testing::fake_nvml
