// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_CLASS_NAME_H_
#define GPUSHARED_SCHEDULER_CLASS_NAME_H_

#include <array>
#include <cstddef>
#include <string_view>

#include "scheduler/types.h"

namespace gpushared::scheduler {

// Names of the classes, in the order of the enumerators.
inline constexpr std::array<std::string_view, kSchedulingClasses> kClassNames = {"high", "normal",
                                                                                 "low"};

constexpr std::string_view ClassName(SchedulingClass scheduling_class) {
  return kClassNames.at(static_cast<std::size_t>(scheduling_class));
}

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_CLASS_NAME_H_
