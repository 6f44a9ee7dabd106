// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PTX_DOMINATORS_H_
#define GPUSHARED_SERVER_PTX_DOMINATORS_H_

#include <cstdint>
#include <vector>

#include "server/ptx/control_flow.h"

namespace gpushared::ptx {

// For each block the last other block that every way from the first block to it passes; kNoBlock
// for the first one, and for blocks that no way leads to. Empty when finding it would take more
// than kDominatorStepsMax steps.
std::vector<std::uint32_t> FindDominators(const std::vector<BasicBlock>& blocks);

// Fills in immediate_post_dominator of blocks whose ends and successors are known. False
// when that takes more than kDominatorStepsMax steps.
[[nodiscard]] bool FindPostDominators(std::vector<BasicBlock>& blocks);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_DOMINATORS_H_
