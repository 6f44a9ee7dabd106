// SPDX-License-Identifier: Apache-2.0
// Extracts the PTX from a client's module image.

#ifndef GPUSHARED_COMMON_PTX_TEXT_FATBIN_H_
#define GPUSHARED_COMMON_PTX_TEXT_FATBIN_H_

#include <cstddef>
#include <span>
#include <string>

#include "gpushared/result.h"

namespace gpushared::ptx {

// Limit for the PTX text of one module, also after decompression.
inline constexpr std::size_t kPtxBytesMax = std::size_t{64} << 20;
// Limit for the entries (one per architecture and kind) in a fatbin.
inline constexpr std::size_t kFatbinEntriesMax = 256;

// Returns the PTX of `image`: the text itself, or, for a fatbin written by nvcc -fatbin, the
// decompressed PTX of its newest architecture. Fails with kUnsupported if the image contains no PTX
// (the message lists the architectures of its machine code), and with kInvalidArgument and the
// offset if the container is invalid.
Result<std::string> ExtractPtx(std::span<const std::byte> image);

// Whether `image`, in which ExtractPtx finds text, also contains machine code for a newer
// architecture than the text's. Such code may be faster than code compiled from the text.
bool HasNewerMachineCode(std::span<const std::byte> image);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_FATBIN_H_
