// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_CONFORMANCE_RULE_IMAGES_H_
#define GPUSHARED_TESTS_CONFORMANCE_RULE_IMAGES_H_

#include <string_view>

namespace gpushared::testing {

// kernels/rules.cu as PTX text and as a fatbin, embedded so that the program can be copied without
// other files.
std::string_view RulesPtx();
std::string_view RulesFatbin();

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_CONFORMANCE_RULE_IMAGES_H_
