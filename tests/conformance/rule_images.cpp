// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/rule_images.h"

__asm__(
    ".pushsection .rodata\n"
    ".balign 16\n"
    "rules_ptx_begin:\n"
    ".incbin \"" GPUSHARED_RULES_PTX
    "\"\n"
    "rules_ptx_end:\n"
    ".balign 16\n"
    "rules_fatbin_begin:\n"
    ".incbin \"" GPUSHARED_RULES_FATBIN
    "\"\n"
    "rules_fatbin_end:\n"
    ".byte 0\n"
    ".popsection\n");

extern "C" {
extern const char rules_ptx_begin[], rules_ptx_end[];
extern const char rules_fatbin_begin[], rules_fatbin_end[];
}

namespace gpushared::testing {

std::string_view RulesPtx() { return {rules_ptx_begin, rules_ptx_end}; }
std::string_view RulesFatbin() { return {rules_fatbin_begin, rules_fatbin_end}; }

}  // namespace gpushared::testing
