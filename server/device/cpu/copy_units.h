// SPDX-License-Identifier: Apache-2.0
// Copies and fills as units of at most kCopyPieceBytes, run on the calling thread.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_COPY_UNITS_H_
#define GPUSHARED_SERVER_DEVICE_CPU_COPY_UNITS_H_

#include <cstdint>

#include "gpushared/status.h"

#include "server/device/cpu/address_range.h"
#include "server/device/device.h"

namespace gpushared::device {

// kInvalidArgument when the work would touch anything but mapped memory of `range`, or
// breaks a rule of its fields. The caller of a device has checked the same; this is
// what keeps its mistake from becoming another tenant's damage.
Status CheckCopy(const CopyWork& work, const AddressRange& range);
Status CheckFill(const FillWork& work, const AddressRange& range);

// Run one unit of checked work.
void RunCopyUnit(const CopyWork& work, std::uint64_t unit);
void RunFillUnit(const FillWork& work, std::uint64_t unit);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_COPY_UNITS_H_
