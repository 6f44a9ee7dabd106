// SPDX-License-Identifier: Apache-2.0
// The planner decides which instances of a GPU stay, go and are made.

#ifndef GPUSHARED_SERVER_TOOLS_MIG_PLANNER_H_
#define GPUSHARED_SERVER_TOOLS_MIG_PLANNER_H_

#include <string>
#include <vector>

#include "gpushared/result.h"

#include "server/tools/mig/layout.h"

namespace gpushared::mig {

struct Present {
  Instance instance;
  std::string user;  // "process 4711": why it must stay. Empty: nobody uses it.
};

struct Plan {
  Layout keep, destroy, create;

  bool ChangesNothing() const { return destroy.empty() && create.empty(); }
  Layout After() const;
};

// The plan that takes the fewest instances away, and none that is used. Of several it is the one
// that leaves the largest room for further instances, then the one that begins furthest left.
// Instances that are wanted and there, in the same place and division, stay.
//
// kInvalidArgument: the board has no such instances, or not so many. kUnavailable: it could, but
// not beside those that are used. The sentence says why in either case.
Result<Plan> MakePlan(const Board& board, const std::vector<Present>& have,
                      const std::vector<Wanted>& want);

// The plan that leads to exactly this layout. The rejections are the same.
Result<Plan> MakeExactPlan(const Board& board, const std::vector<Present>& have,
                           const Layout& target);

// Counts the instances of a layout by kind.
std::vector<Wanted> GetKinds(const Layout& layout);

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_PLANNER_H_
