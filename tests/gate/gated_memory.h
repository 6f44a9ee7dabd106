// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_GATE_GATED_MEMORY_H_
#define GPUSHARED_TESTS_GATE_GATED_MEMORY_H_

#include <cstddef>
#include <string>

// Runs a case of `gated_program memory`. Returns the exit code, 2 for an unknown case.
int RunMemoryCase(const std::string& name, std::size_t limit_mib);

#endif  // GPUSHARED_TESTS_GATE_GATED_MEMORY_H_
