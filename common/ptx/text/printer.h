// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_COMMON_PTX_TEXT_PRINTER_H_
#define GPUSHARED_COMMON_PTX_TEXT_PRINTER_H_

#include <string>

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Prints PTX text that parses to the same module and assembles to the same code. Parsing the text
// and printing the result gives the same text again.
std::string Print(const Module& module);
std::string Print(const Instruction& instruction);  // Without the ';'.

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_PRINTER_H_
