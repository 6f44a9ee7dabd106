// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/boards.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace gpushared::mig {
namespace {

// Possible placements of instances. The entries for A100 and A30 are from NVIDIA's guide
// (`nvidia-smi mig -lgipp`, "Getting Started with MIG"). The entries for other boards are from the
// guide's figures in "Supported MIG Profiles", which match the entries for A100.
using Starts = std::vector<std::uint32_t>;

// Instance sizes of boards with 8 slices, by number of memory slices. 0 means unknown.
struct Sizes {
  std::uint64_t one, two, four, eight;  // In MiB.
  // Numbers of multiprocessors.
  std::uint32_t one_g, one_g_double, two_g, three_g, four_g, seven_g;
};

// Memory sizes in profile names: the GB of 1, 2, 4 and 8 memory slices.
struct Gigabytes {
  const char *one, *two, *four, *eight;
};

// Returns a board with 8 slices. A100 and later have 8 memory slices, 7 compute slices, and the
// same profile ids.
Board EightSlices(std::string name, const Gigabytes& gb, const Sizes& sizes) {
  const Starts any = {0, 1, 2, 3, 4, 5, 6}, even = {0, 2, 4, 6};
  const auto named = [](const char* compute, const char* memory) {
    return std::string(compute) + "." + memory + "gb";
  };
  return {.name = std::move(name),
          .slices = 8,
          .profiles = {
              {named("1g", gb.one), 19, 7, 1, 1, sizes.one, sizes.one_g, any},
              {named("1g", gb.one) + "+me", 20, 1, 1, 1, sizes.one, sizes.one_g, any},
              {named("1g", gb.two), 15, 4, 2, 1, sizes.two, sizes.one_g_double, even},
              {named("2g", gb.two), 14, 3, 2, 2, sizes.two, sizes.two_g, {0, 2, 4}},
              {named("3g", gb.four), 9, 2, 4, 3, sizes.four, sizes.three_g, {0, 4}},
              {named("4g", gb.four), 5, 1, 4, 4, sizes.four, sizes.four_g, {0}},
              {named("7g", gb.eight), 0, 1, 8, 7, sizes.eight, sizes.seven_g, {0}},
          }};
}

Board A30() {
  const Starts any = {0, 1, 2, 3}, halves = {0, 2};
  return {.name = "A30",
          .slices = 4,
          .profiles = {
              {"1g.6gb", 14, 4, 1, 1, 5949, 14, any},
              {"1g.6gb+me", 21, 1, 1, 1, 5949, 14, any},
              {"2g.12gb", 5, 2, 2, 2, 11970, 28, halves},
              {"2g.12gb+me", 6, 1, 2, 2, 11970, 28, halves},
              {"4g.24gb", 0, 1, 4, 4, 24002, 56, {0}},
          }};
}

constexpr const char* kGuide = "NVIDIA MIG User Guide, Supported MIG Profiles";

}  // namespace

std::vector<KnownBoard> KnownBoards() {
  const std::string guide = kGuide;
  return {
      {A30(), guide + " (A30); ids and sizes: nvidia-smi mig -lgip of an A30"},
      {EightSlices("A100-40", {"5", "10", "20", "40"},
                   {4864, 9856, 19968, 40192, 14, 14, 28, 42, 56, 98}),
       guide + " (A100); ids and sizes: the guide's nvidia-smi mig -lgip"},
      {EightSlices("A100-80", {"10", "20", "40", "80"},
                   {9856, 19968, 40192, 80384, 14, 14, 28, 42, 56, 98}),
       guide + " (A100); ids as A100-40, sizes as NVML reports them"},
      {EightSlices("H100-80", {"10", "20", "40", "80"},
                   {9984, 20091, 40448, 81152, 16, 26, 32, 60, 64, 132}),
       guide + " (H100 80GB); ids and sizes: nvidia-smi mig -lgip of an H100 80GB"},
      {EightSlices("H100-96", {"12", "24", "48", "96"},
                   {11264, 23552, 47616, 95232, 16, 26, 32, 60, 64, 132}),
       guide + " (H100 96GB on GH200); ids and sizes: nvidia-smi mig -lgip of a GH200"},
      {EightSlices("H200", {"18", "35", "71", "141"},
                   {16384, 33280, 71168, 143360, 16, 26, 32, 60, 64, 132}),
       guide + " (H200); ids as H100; memory is rounded, multiprocessors of 1g.35gb are H100's"},
      {EightSlices("B200", {"23", "45", "90", "180"}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}),
       guide + " (B200); ids as H100; memory and multiprocessors are not published"},
  };
}

std::optional<KnownBoard> FindKnownBoard(std::string_view name) {
  for (KnownBoard& known : KnownBoards()) {
    if (known.board.name == name) return std::move(known);
  }
  return std::nullopt;
}

}  // namespace gpushared::mig
