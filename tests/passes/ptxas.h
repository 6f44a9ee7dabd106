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
  std::uint32_t instructions = 0;  // Without NOPs, which pad the end of the section.
  std::uint32_t spilled_bytes = 0;
  // Opcodes of the kernel's longest loop, in order. Empty if there is no loop, and for
  // architectures before sm_90, because they encode branches differently.
  std::vector<std::uint32_t> loop;
};

bool HasPtxas();

// Returns the machine code of every kernel, for an architecture such as "sm_90". Fails with ptxas's
// message. Earlier results for the same text are read from the build directory.
Result<std::map<std::string, MachineCode>> Assemble(const std::string& ptx,
                                                    const std::string& architecture);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_PASSES_PTXAS_H_
