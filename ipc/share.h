// SPDX-License-Identifier: Apache-2.0
// Human-readable shares of device time.

#ifndef GPUSHARED_IPC_SHARE_H_
#define GPUSHARED_IPC_SHARE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "gpushared/result.h"

namespace gpushared::ipc {

// Parses "25%" or "12.5%" to rounded thousandths. kInvalidArgument unless the text is a percentage
// from 0.1% to 100%.
Result<std::uint32_t> ParseShare(std::string_view text);

// Formats a share as "25%" or "12.5%".
std::string ShareText(std::uint32_t per_mille);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_SHARE_H_
