// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_DOMINATORS_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_DOMINATORS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/ptx/analysis/flow.h"

namespace gpushared::ptx {

// Limit for the steps of building one tree of dominators or post-dominators. The largest kernels
// compiled by nvcc take a few thousand.
inline constexpr std::size_t kDominatorStepsMax = std::size_t{1} << 27;

// Returns the immediate dominator of each block B: the last block other than B that is on every
// path from the first block to B. kNoBlock for the first block and for unreachable blocks. Empty if
// this would take more than kDominatorStepsMax steps.
std::vector<std::uint32_t> FindDominators(const std::vector<BasicBlock>& blocks);

// Sets immediate_post_dominator of blocks whose ends and successors are known. Returns false if
// this takes more than kDominatorStepsMax steps.
[[nodiscard]] bool FindPostDominators(std::vector<BasicBlock>& blocks);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_DOMINATORS_H_
