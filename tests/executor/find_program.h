// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_EXECUTOR_FIND_PROGRAM_H_
#define GPUSHARED_TESTS_EXECUTOR_FIND_PROGRAM_H_

#include <string_view>

#include "server/device/cpu/executor/program.h"

namespace gpushared::testing {

// Returns the program of the kernel with this name, or null if there is none. Owned by `image`.
inline const device::executor::Program* FindProgram(const device::executor::ModuleImage& image,
                                                    std::string_view name) {
  for (std::size_t i = 0; i < image.size(); ++i) {
    if (image.program(i).info().name == name) return &image.program(i);
  }
  return nullptr;
}

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_EXECUTOR_FIND_PROGRAM_H_
