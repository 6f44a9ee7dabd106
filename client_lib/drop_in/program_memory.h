// SPDX-License-Identifier: Apache-2.0
// Memory that the program has mapped, and may have mapped otherwise or not at all since it named
// it. The kernel is asked, and answers where touching the memory would end the program.
//
// Thread-safe. What another thread maps meanwhile nobody can know.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_PROGRAM_MEMORY_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_PROGRAM_MEMORY_H_

#include <cstddef>
#include <cstdint>

namespace gpushared::drop_in {

// Whether there is memory in all of this range, or the kernel does not say.
bool IsMapped(std::uint64_t address, std::size_t bytes);

// Whether all of it may be read and written, as far as the kernel says.
bool IsReadableAndWritable(std::uint64_t address, std::size_t bytes);

// False: some of the program's bytes cannot be read.
bool ReadProgram(std::byte* to, const std::byte* from, std::size_t bytes);

// Writes the bytes of `from` that differ from `before`, and no others: the program may be writing
// its own beside them. False: some of its pages cannot be written, and none is.
bool WriteProgram(std::byte* to, const std::byte* from, const std::byte* before, std::size_t bytes);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_PROGRAM_MEMORY_H_
