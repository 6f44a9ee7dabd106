// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_COMMON_PTX_TEXT_REGISTER_PARAMETERS_H_
#define GPUSHARED_COMMON_PTX_TEXT_REGISTER_PARAMETERS_H_

#include "gpushared/status.h"

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// PTX allows parameters and results of functions in registers, and calls may pass registers and
// numbers to both kinds of parameters. The rest of this library only supports .param. Therefore
// .reg is replaced by .param, which functions load into the register first and store from it before
// they return, and calls use additional .param variables.
//
// Anything that ptxas rejects in a call is unchanged: predicates, and types of 8 and 16 bits. So
// are vectors, and results whose name an inner scope declares again.
//
// Fails with kLimitExceeded if this would add more than kStatementsMax statements.
Status LowerRegisterParameters(Module& module);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_REGISTER_PARAMETERS_H_
