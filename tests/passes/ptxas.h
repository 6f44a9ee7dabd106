// SPDX-License-Identifier: Apache-2.0
// The machine code that ptxas generates for a text, if ptxas is available.

#ifndef GPUSHARED_TESTS_PASSES_PTXAS_H_
#define GPUSHARED_TESTS_PASSES_PTXAS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::testing {

struct MachineCode {
  std::uint32_t registers = 0;     // Registers per thread.
  std::uint32_t instructions = 0;  // Without the padding at the end of the section.
  std::uint32_t spilled_bytes = 0;
  // The opcodes of its longest loop, in order. Empty if there is none, and before sm_90, which
  // encodes branches differently.
  std::vector<std::uint32_t> loop;
};

bool HasPtxas();

// Returns the machine code of every kernel, for an architecture such as "sm_90". Fails with ptxas's
// message. Earlier results for the same text are read from the build directory.
Result<std::map<std::string, MachineCode>> Assemble(const std::string& ptx,
                                                    const std::string& architecture);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_PASSES_PTXAS_H_
