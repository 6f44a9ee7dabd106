// SPDX-License-Identifier: Apache-2.0
// Parsing of typed or piped command lines into words and numbers. Input is untrusted.

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
inline constexpr std::uint64_t kPidMax = 4'194'304;  // Largest pid on Linux.
// Largest uid; one above it means "no user".
inline constexpr std::uint64_t kUidMax = 4'294'967'294;
inline constexpr std::uint64_t kSecondsMax = 86'400;    // Longest time: one day.
inline constexpr std::uint64_t kMemoryMax = 1'048'576;  // Largest limit, in GiB per device.
inline constexpr std::uint64_t kChunksMax = 4'096;

// Returns the next line without its newline, or no value at the end of the input. Keeps at most
// kLineBytesMax + 1 bytes, so that an overlong line is detected without using memory for it.
std::optional<std::string> NextLine(std::istream& input);

// Splits a line into words. Rejects lines that are too long or contain anything but printable
// ASCII.
Result<std::vector<std::string>> Words(std::string_view line);

// Parses a decimal number, digits only, from `least` to `most`. `what` and `unit` are used in the
// rejection.
Result<std::uint64_t> Number(std::string_view word, std::string_view what, std::uint64_t least,
                             std::uint64_t most, std::string_view unit = "");

// Parses a decimal number above 0 and at most 100.
Result<double> Percentage(std::string_view word);

// Parses a size: a number with suffix G or M, as in 4G or 512M.
Result<std::uint64_t> MemoryLimit(std::string_view word);

}  // namespace gpushared::server::mps

#endif  // GPUSHARED_SERVER_TOOLS_MPS_INPUT_H_
