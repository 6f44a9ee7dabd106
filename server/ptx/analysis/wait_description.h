// SPDX-License-Identifier: Apache-2.0
// Describes the loop and the memory of a wait for other blocks.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_WAIT_DESCRIPTION_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_WAIT_DESCRIPTION_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "server/ptx/analysis/control_flow.h"

namespace gpushared::ptx {

// Limit for the instructions searched for the origin of an address. Code compiled by nvcc takes
// about ten.
inline constexpr std::size_t kAddressStepsMax = 1000;

// "the loop of lines 12 to 20 waits for what parameter 'done' points to". `instruction`: index of
// an access that waits (FindBlockWaits). The loop is the shortest cycle through it. Linear in the
// length of the function.
std::string DescribeWait(const ControlFlow& flow, std::uint32_t instruction);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_WAIT_DESCRIPTION_H_
