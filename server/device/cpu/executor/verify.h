// SPDX-License-Identifier: Apache-2.0
// Validates code that another process decoded, so that running it cannot access anything but the
// frames, the parameters and the memory of the launch.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_VERIFY_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_VERIFY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gpushared/status.h"

#include "server/device/cpu/executor/code.h"
#include "server/device/cpu/executor/program.h"

namespace gpushared::device::executor {

// Checks everything in a runnable program. `numbers`, parallel to the ops, are those of their
// handlers (OpOfNumber).
//
// Each offset of a row leaves space for a wide row in the frame and is aligned. Every other number
// is valid for its operation. Targets are inside their function, which ends in an op that execution
// cannot pass. Tables, calls and matrices are valid for the op. Parameters are inside their areas.
// No forward path runs for long without a check for a kill. Whether the program computes what the
// client's PTX specifies is not checked, because wrong results affect only the client.
//
// Fails with kInvalidArgument and the number of the invalid op.
Status Verify(const KernelInfo& info, const Code& code, const std::vector<std::uint16_t>& numbers,
              Flavour flavour);

// Returns kInvalidArgument. `what` names the part of the decoded code that is invalid.
Status WrongCode(const std::string& what);

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_VERIFY_H_
