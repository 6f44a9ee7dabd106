// SPDX-License-Identifier: Apache-2.0
// Copies and fills as units of at most kCopyPieceBytes, run on the calling thread.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_COPY_UNITS_H_
#define GPUSHARED_SERVER_DEVICE_CPU_COPY_UNITS_H_

#include <cstdint>

#include "server/device/device.h"

namespace gpushared::device {

// Runs one unit of work that has passed CheckCopy or CheckFill.
void RunCopyUnit(const CopyWork& work, std::uint64_t unit);
void RunFillUnit(const FillWork& work, std::uint64_t unit);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_COPY_UNITS_H_
