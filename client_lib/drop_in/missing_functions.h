// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_MISSING_FUNCTIONS_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_MISSING_FUNCTIONS_H_

#include <string_view>

namespace gpushared::drop_in {

// Returns why a function of the driver has no handler here, and what to do instead. Empty if no
// reason is recorded.
std::string_view WhyMissing(std::string_view symbol);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_MISSING_FUNCTIONS_H_
