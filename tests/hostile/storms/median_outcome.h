// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_HOSTILE_STORMS_MEDIAN_OUTCOME_H_
#define GPUSHARED_TESTS_HOSTILE_STORMS_MEDIAN_OUTCOME_H_

#include <vector>

#include "tests/hostile/storms/experiment.h"

namespace gpushared::storms {

// Combines several runs of one storm, at least one, into one outcome: the median of each figure
// separately (the lower one of two). Deaths and wrong results are summed up, and a condition that
// was broken in one run is broken in the result.
StormOutcome GetMedian(const std::vector<StormOutcome>& runs);

}  // namespace gpushared::storms

#endif  // GPUSHARED_TESTS_HOSTILE_STORMS_MEDIAN_OUTCOME_H_
