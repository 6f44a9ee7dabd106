// SPDX-License-Identifier: Apache-2.0
// The images of fact_kernels.cu inside the program, so that it can be copied as a single file.
#include "tests/gpu/facts.h"

__asm__(
    ".pushsection .rodata\n"
    ".balign 16\n"
    "fact_text:\n"
    ".incbin \"" GPUSHARED_FACTS_DIRECTORY
    "/fact_kernels.ptx\"\n"
    ".byte 0\n"
    ".balign 16\n"
    "fact_fatbin:\n"
    ".incbin \"" GPUSHARED_FACTS_DIRECTORY
    "/fact_kernels.fatbin\"\n"
    ".byte 0\n"
    ".popsection\n");
// The names are labels in the assembly above.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" const char fact_text[], fact_fatbin[];
// NOLINTEND(readability-identifier-naming)

namespace gpushared::testing {

const char* FactText() { return fact_text; }
const char* FactFatbin() { return fact_fatbin; }

}  // namespace gpushared::testing
