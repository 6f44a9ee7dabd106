// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_MIG_BOARDS_H_
#define GPUSHARED_SERVER_TOOLS_MIG_BOARDS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/tools/mig/layout.h"

namespace gpushared::mig {

// A documented board, for planning without a GPU. For an installed GPU, NVML is queried instead.
struct KnownBoard {
  Board board;
  std::string source;  // Source of its profiles, placements and sizes.
};

// Returns A30, A100-40, A100-80, H100-80, H100-96, H200 and B200.
std::vector<KnownBoard> KnownBoards();
// Returns no value for an unknown board.
std::optional<KnownBoard> FindKnownBoard(std::string_view name);

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_BOARDS_H_
