// SPDX-License-Identifier: Apache-2.0
// Determines which instances of a GPU to keep, destroy and create.

#ifndef GPUSHARED_SERVER_TOOLS_MIG_PLANNER_H_
#define GPUSHARED_SERVER_TOOLS_MIG_PLANNER_H_

#include <string>
#include <vector>

#include "gpushared/result.h"

#include "server/tools/mig/layout.h"

namespace gpushared::mig {

struct Present {
  Instance instance;
  // Who uses the instance, so that it must be kept: "process 4711". Empty if it is unused.
  std::string user;
};

struct Plan {
  Layout keep, destroy, create;

  bool ChangesNothing() const { return destroy.empty() && create.empty(); }
  Layout After() const;
};

// Returns the plan that destroys the fewest instances and none that is in use. Among these, prefers
// the one that leaves the most space for further instances, then the one with the leftmost
// placements. Existing instances with the requested placement and division are kept.
//
// kInvalidArgument if no layout of the board has these instances. kUnavailable if each such layout
// removes an instance that is in use. The message explains why in either case.
Result<Plan> MakePlan(const Board& board, const std::vector<Present>& have,
                      const std::vector<Wanted>& want);

// Returns the plan for exactly this layout. Rejections are those of MakePlan.
Result<Plan> MakeExactPlan(const Board& board, const std::vector<Present>& have,
                           const Layout& target);

// Counts the instances of a layout by kind.
std::vector<Wanted> GetKinds(const Layout& layout);

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_PLANNER_H_
