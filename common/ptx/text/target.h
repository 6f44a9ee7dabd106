// SPDX-License-Identifier: Apache-2.0
// Which versions of PTX and which architectures a text may be for.

#ifndef GPUSHARED_COMMON_PTX_TEXT_TARGET_H_
#define GPUSHARED_COMMON_PTX_TEXT_TARGET_H_

#include <cstdint>
#include <string_view>

#include "gpushared/status.h"

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// The newest version that is read: that of CUDA 13.5.
inline constexpr std::string_view kNewestVersion = "9.5";

// Whether a version of PTX is one that CUDA has had, up to kNewestVersion. "8.10" is 8.1, as for
// ptxas.
bool IsKnownVersion(std::string_view version);

// The version that a text begins with, after comments; empty when it begins with something else.
// Reads no further. Borrows the text.
std::string_view GetVersion(std::string_view text);

// kInvalidArgument, with what a driver's compiler says: an unknown version, an unknown target, one
// that the version does not have, or one newer than `newest_architecture` (90 for sm_90).
Status CheckTarget(const Module& module, std::uint32_t newest_architecture);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_TARGET_H_
