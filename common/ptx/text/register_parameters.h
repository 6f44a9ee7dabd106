// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_COMMON_PTX_TEXT_REGISTER_PARAMETERS_H_
#define GPUSHARED_COMMON_PTX_TEXT_REGISTER_PARAMETERS_H_

#include "gpushared/status.h"

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Replaces parameters and results of functions in registers (.reg) by .param variables, because the
// rest of this library only supports .param. A function first loads its parameters into the
// registers, and stores the registers of its results before it returns. A call that passes
// registers or numbers, which PTX allows for both kinds of parameters, uses additional .param
// variables.
//
// Leaves unchanged what ptxas rejects in a call (predicates, and types of 8 and 16 bits), vectors,
// and results whose name an inner scope declares again.
//
// Fails with kLimitExceeded if it would add more than kStatementsMax statements.
Status LowerRegisterParameters(Module& module);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_REGISTER_PARAMETERS_H_
