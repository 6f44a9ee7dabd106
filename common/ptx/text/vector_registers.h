// SPDX-License-Identifier: Apache-2.0
// Vectors of registers (.reg .v4 .f32 %v), which the rest of this library does without.

#ifndef GPUSHARED_COMMON_PTX_TEXT_VECTOR_REGISTERS_H_
#define GPUSHARED_COMMON_PTX_TEXT_VECTOR_REGISTERS_H_

#include "gpushared/status.h"

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Declares a register for each component in the place of a vector, also among the parameters and
// results of functions. "%v.y" becomes that register's name, and "%v" the vector of all of them,
// {%v$gpushared_x, %v$gpushared_y}. Whether the instruction takes one is for others to judge.
// kLimitExceeded where the module became too long.
Status SplitVectorRegisters(Module& module);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_VECTOR_REGISTERS_H_
