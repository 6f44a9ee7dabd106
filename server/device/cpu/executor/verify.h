// SPDX-License-Identifier: Apache-2.0
// Code that another process decoded is input: whatever it says, running it must touch nothing but
// the frames, the parameters and the memory that the launch gave to it.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_VERIFY_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_VERIFY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gpushared/status.h"

#include "server/device/cpu/executor/code.h"
#include "server/device/cpu/executor/program.h"

namespace gpushared::device::executor {

// Checks all of a program that may run. `numbers`, parallel to the ops, are those of their handlers
// (OpOfNumber).
//
// Each offset of a row lies where a wide row fits into the frame, and is aligned as rows are. Each
// other number is what the operation takes it for. Targets lie in their function, which ends in an
// op that nobody passes. Tables, calls and matrices are those that the op can use. Parameters are
// inside their areas. No way forward runs for long without a look for a kill. What a wrong program
// computes is its client's affair.
//
// kInvalidArgument with the number of the op that is wrong.
Status Verify(const KernelInfo& info, const Code& code, const std::vector<std::uint16_t>& numbers,
              Flavour flavour);

// kInvalidArgument: what of decoded code is wrong.
Status WrongCode(const std::string& what);

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_VERIFY_H_
