// SPDX-License-Identifier: Apache-2.0
// Links several PTX modules into one PTX text, as a GPU linker links machine code.

#ifndef GPUSHARED_COMMON_PTX_LINK_LINKER_H_
#define GPUSHARED_COMMON_PTX_LINK_LINKER_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "gpushared/result.h"

namespace gpushared::ptx {

struct LinkInput {
  std::string_view name;  // File name for messages.
  std::string_view text;
};

inline constexpr std::size_t kLinkInputsMax = 4096;

// Returns one text with all functions and variables of the inputs.
//
// - An `.extern` name refers to the definition in another input. Names that every device defines
//   remain `.extern`: vprintf, malloc, free, __assertfail, and shared memory whose size the launch
//   determines. The linker itself defines grid synchronization (cudaCGGetIntrinsicHandle and
//   cudaCGSynchronize of libcudadevrt). Any other `.extern` name is rejected.
// - The linker also defines the functions for launching kernels from kernels (child_kernels.h). A
//   kernel's name that is used as a value then becomes a variable that represents the kernel.
// - Among several `.weak` definitions the first is used, among `.common` variables the largest, and
//   any other definition has precedence over both. Two definitions of that last kind are rejected.
// - A name without linkage is local to its input. If another input uses the same name, the linker
//   appends a number to the name.
// - `.version` and `.target` are the newest of all inputs.
// - Kernels without `.maxnreg` get `.maxnreg registers_most`; 0 means no limit.
//
// Fails with kInvalidArgument (the input's name, followed by the parser's message or the symbol)
// and kLimitExceeded. Thread-safe.
Result<std::string> Link(std::span<const LinkInput> inputs, unsigned registers_most = 0);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_LINK_LINKER_H_
