// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_MIG_BOARDS_H_
#define GPUSHARED_SERVER_TOOLS_MIG_BOARDS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/tools/mig/layout.h"

namespace gpushared::mig {

// A board as its documents have it, to plan for without a GPU. Where there is a GPU, NVML is asked.
struct KnownBoard {
  Board board;
  std::string source;  // Where its profiles, places and sizes are from.
};

// A30, A100-40, A100-80, H100-80, H100-96, H200 and B200.
std::vector<KnownBoard> KnownBoards();
// Nothing when it is none of them.
std::optional<KnownBoard> FindKnownBoard(std::string_view name);

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_BOARDS_H_
