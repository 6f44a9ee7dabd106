// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PTX_POST_DOMINATORS_H_
#define GPUSHARED_SERVER_PTX_POST_DOMINATORS_H_

#include <vector>

#include "server/ptx/control_flow.h"

namespace gpushared::ptx {

// Fills in immediate_post_dominator of blocks whose ends and successors are known. False
// when that takes more than kPostDominatorStepsMax steps.
[[nodiscard]] bool FindPostDominators(std::vector<BasicBlock>& blocks);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_POST_DOMINATORS_H_
