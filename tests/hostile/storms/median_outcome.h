// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_HOSTILE_STORMS_MEDIAN_OUTCOME_H_
#define GPUSHARED_TESTS_HOSTILE_STORMS_MEDIAN_OUTCOME_H_

#include <vector>

#include "tests/hostile/storms/experiment.h"

namespace gpushared::storms {

// Several runs of one storm, at least one, as one outcome: of each figure the median (the lower one
// of two), by itself. Deaths and wrong results are summed up, and what was broken in one run is
// broken here.
StormOutcome GetMedian(const std::vector<StormOutcome>& runs);

}  // namespace gpushared::storms

#endif  // GPUSHARED_TESTS_HOSTILE_STORMS_MEDIAN_OUTCOME_H_
