// SPDX-License-Identifier: Apache-2.0
// Supported PTX versions and architectures.

#ifndef GPUSHARED_COMMON_PTX_TEXT_TARGET_H_
#define GPUSHARED_COMMON_PTX_TEXT_TARGET_H_

#include <cstdint>
#include <string_view>

#include "gpushared/status.h"

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Newest supported version: that of CUDA 13.5.
inline constexpr std::string_view kNewestVersion = "9.5";

// Whether this PTX version has been released, up to kNewestVersion. "8.10" means 8.1, as in ptxas.
bool IsKnownVersion(std::string_view version);

// Returns the version at the beginning of a text, after comments; empty if the text begins with
// anything else. Does not read further. Borrows the text.
std::string_view GetVersion(std::string_view text);

// Fails with kInvalidArgument and the message of a driver's compiler for an unknown version, an
// unknown target, a target that the version does not support, or a target newer than
// `newest_architecture` (90 for sm_90).
Status CheckTarget(const Module& module, std::uint32_t newest_architecture);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_TARGET_H_
