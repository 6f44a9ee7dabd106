// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_COMMON_PTX_TEXT_REGISTER_PARAMETERS_H_
#define GPUSHARED_COMMON_PTX_TEXT_REGISTER_PARAMETERS_H_

#include "gpushared/status.h"

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// PTX lets functions have parameters and results in registers, and calls pass registers and numbers
// to parameters of either kind. The rest of this library knows .param alone. So functions get
// .param in place of .reg, which they load into the register first and store from it before they
// return, and calls go through .param variables of their own.
//
// What ptxas does not take in a call stays as it is: predicates, and types of 8 and 16 bits. So do
// vectors, and results whose name an inner scope declares again.
//
// kLimitExceeded where that would add more than kStatementsMax statements.
Status LowerRegisterParameters(Module& module);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_REGISTER_PARAMETERS_H_
