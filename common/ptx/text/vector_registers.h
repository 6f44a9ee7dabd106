// SPDX-License-Identifier: Apache-2.0
// Splits vector registers (.reg .v4 .f32 %v), which the rest of this library does not support.

#ifndef GPUSHARED_COMMON_PTX_TEXT_VECTOR_REGISTERS_H_
#define GPUSHARED_COMMON_PTX_TEXT_VECTOR_REGISTERS_H_

#include "gpushared/status.h"

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Replaces each vector by one register per component, including parameters and results of
// functions. "%v.y" becomes the name of a component's register, and "%v" the vector of all of these
// registers, {%v$gpushared_x, %v$gpushared_y}. Does not check whether the instruction accepts a
// vector. Fails with kLimitExceeded if the module becomes too long.
Status SplitVectorRegisters(Module& module);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_VECTOR_REGISTERS_H_
