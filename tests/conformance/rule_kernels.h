// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_CONFORMANCE_RULE_KERNELS_H_
#define GPUSHARED_TESTS_CONFORMANCE_RULE_KERNELS_H_

#include "tests/support/fake_space.h"

namespace gpushared::testing {

// Twins of the kernels in kernels/rules.cu, for the fake device.
FakeKernels RuleKernels();

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_CONFORMANCE_RULE_KERNELS_H_
