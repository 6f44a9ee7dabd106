// SPDX-License-Identifier: Apache-2.0
// The machine code that ptxas makes of a text, where there is a ptxas.

#ifndef GPUSHARED_TESTS_PASSES_PTXAS_H_
#define GPUSHARED_TESTS_PASSES_PTXAS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::testing {

struct MachineCode {
  std::uint32_t registers = 0;     // Per thread.
  std::uint32_t instructions = 0;  // Without those that only fill up the section.
  std::uint32_t spilled_bytes = 0;
  // The opcodes of its longest loop, in their order; empty when it has none, and before sm_90,
  // which encodes branches in another way.
  std::vector<std::uint32_t> loop;
};

bool HasPtxas();

// Of every kernel, for an architecture such as "sm_90". Fails with what ptxas says. What it made of
// the same text before is read from the build directory.
Result<std::map<std::string, MachineCode>> Assemble(const std::string& ptx,
                                                    const std::string& architecture);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_PASSES_PTXAS_H_
