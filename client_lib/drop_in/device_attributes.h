// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_ATTRIBUTES_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_ATTRIBUTES_H_

#include "gpushared/client.h"

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// Attributes by the driver's numbers; the rest stand in device_attributes.cpp alone.
inline constexpr int kThreadsPerBlockMax = 1;
inline constexpr int kSharedBytesPerBlock = 8;
inline constexpr int kConstantBytes = 9;
inline constexpr int kWarpThreads = 10;
inline constexpr int kPitchBytesMax = 11;
inline constexpr int kRegistersPerBlock = 12;
inline constexpr int kClockKilohertz = 13;
inline constexpr int kTextureAlignment = 14;
inline constexpr int kMultiprocessors = 16;
inline constexpr int kPciBus = 33;
inline constexpr int kPciDevice = 34;
inline constexpr int kThreadsPerMultiprocessor = 39;
inline constexpr int kPciDomain = 50;
inline constexpr int kComputeMajor = 75;
inline constexpr int kComputeMinor = 76;
inline constexpr int kSharedBytesPerMultiprocessor = 81;
inline constexpr int kSharedBytesOptIn = 97;
inline constexpr int kBlocksPerMultiprocessor = 106;

// The value of attribute `id`. kInvalidValue for an id that CUDA does not know; zero for what this
// device does not have.
Code DeviceAttribute(const DeviceProperties& device, int id, int& value);
// The same for an id that CUDA knows.
int DeviceAttribute(const DeviceProperties& device, int id);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_ATTRIBUTES_H_
