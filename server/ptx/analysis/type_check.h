// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_TYPE_CHECK_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_TYPE_CHECK_H_

#include "gpushared/status.h"

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Detects errors that a PTX compiler rejects and an interpreter would execute: duplicate names,
// registers of the wrong type, superfluous operands, stores to constants. Checks the instructions
// of instruction_forms.h and accepts all others, so that no text that ptxas accepts is rejected. A
// single pass over the text; any thread may call it.
//
// Fails with kInvalidArgument and the line of the first error.
Status CheckTypes(const Module& module);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_TYPE_CHECK_H_
