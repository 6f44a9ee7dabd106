// SPDX-License-Identifier: Apache-2.0
// Lines that somebody typed or piped, as words and numbers. They are bad until checked.

#ifndef GPUSHARED_SERVER_TOOLS_MPS_INPUT_H_
#define GPUSHARED_SERVER_TOOLS_MPS_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::server::mps {

inline constexpr std::size_t kLineBytesMax = 1024;
inline constexpr std::uint64_t kPidMax = 4'194'304;      // Linux has no greater one.
inline constexpr std::uint64_t kUidMax = 4'294'967'294;  // The greatest number means nobody.
inline constexpr std::uint64_t kSecondsMax = 86'400;     // A day.
inline constexpr std::uint64_t kMemoryMax = 1'048'576;   // GiB, of one device.
inline constexpr std::uint64_t kChunksMax = 4'096;

// The next line without its end. Keeps no more than kLineBytesMax + 1 bytes of it, so that a longer
// one is known and costs no memory. Nothing: the input has ended.
std::optional<std::string> NextLine(std::istream& input);

// The words of a line. Rejects lines that are too long or have anything but printable ASCII.
Result<std::vector<std::string>> Words(std::string_view line);

// A decimal number, digits alone, from `least` to `most`. `what` and `unit` are for the rejection.
Result<std::uint64_t> Number(std::string_view word, std::string_view what, std::uint64_t least,
                             std::uint64_t most, std::string_view unit = "");

// Above 0 and at most 100, with decimals.
Result<double> Percentage(std::string_view word);

// Bytes: a number and G or M, as in 4G or 512M.
Result<std::uint64_t> MemoryLimit(std::string_view word);

}  // namespace gpushared::server::mps

#endif  // GPUSHARED_SERVER_TOOLS_MPS_INPUT_H_
