// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_TYPE_CHECK_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_TYPE_CHECK_H_

#include "gpushared/status.h"

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Finds what a compiler of PTX rejects and an interpreter would run: a name that is defined twice,
// a register of the wrong type, an operand too many, a store to constants. Judges the instructions
// of instruction_forms.h and takes all others as they are, so that a text which ptxas takes is
// never rejected. One pass over the text; any thread may call it.
//
// kInvalidArgument with the line of the first finding.
Status CheckTypes(const Module& module);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_TYPE_CHECK_H_
