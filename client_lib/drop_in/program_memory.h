// SPDX-License-Identifier: Apache-2.0
// Access to memory that the program has mapped, and may have remapped or unmapped since it passed
// the address. Uses system calls, which report an error where a direct access would crash the
// program.
//
// Thread-safe. Another thread can change the mappings at any time; the results do not reflect that.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_PROGRAM_MEMORY_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_PROGRAM_MEMORY_H_

#include <cstddef>
#include <cstdint>

namespace gpushared::drop_in {

// Returns true if the whole range is mapped or if the system does not report the mappings.
bool IsMapped(std::uint64_t address, std::size_t bytes);

// Returns whether the whole range is readable and writable, as far as the system reports.
bool IsReadableAndWritable(std::uint64_t address, std::size_t bytes);

// Returns false if some of the program's bytes cannot be read.
bool ReadProgram(std::byte* to, const std::byte* from, std::size_t bytes);

// Writes only the bytes of `from` that differ from `before`, because the program may be writing
// adjacent bytes. Returns false, without writing, if a page with such a byte is not writable.
bool WriteProgram(std::byte* to, const std::byte* from, const std::byte* before, std::size_t bytes);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_PROGRAM_MEMORY_H_
