// SPDX-License-Identifier: Apache-2.0
// Finds the PTX in what a client hands in as a module.

#ifndef GPUSHARED_COMMON_PTX_TEXT_FATBIN_H_
#define GPUSHARED_COMMON_PTX_TEXT_FATBIN_H_

#include <cstddef>
#include <span>
#include <string>

#include "gpushared/result.h"

namespace gpushared::ptx {

// Bytes of one module's PTX text, also after decompression.
inline constexpr std::size_t kPtxBytesMax = std::size_t{64} << 20;
// Entries (one per architecture and kind) that a fatbin may hold.
inline constexpr std::size_t kFatbinEntriesMax = 256;

// `image` is PTX text, or a fatbin as nvcc -fatbin writes it: then the PTX of its newest
// architecture, decompressed. kUnsupported when there is none, with the architectures that
// it holds machine code for; kInvalidArgument when the container is broken, with the offset.
Result<std::string> ExtractPtx(std::span<const std::byte> image);

// Whether `image`, of which ExtractPtx finds text, also holds machine code of a newer architecture
// than the text's: it may be better code than any that is made of the text.
bool HasNewerMachineCode(std::span<const std::byte> image);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_FATBIN_H_
