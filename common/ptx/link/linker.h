// SPDX-License-Identifier: Apache-2.0
// Several PTX modules as one text: what a GPU's linker does to their machine code.

#ifndef GPUSHARED_COMMON_PTX_LINK_LINKER_H_
#define GPUSHARED_COMMON_PTX_LINK_LINKER_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "gpushared/result.h"

namespace gpushared::ptx {

struct LinkInput {
  std::string_view name;  // For messages: a file.
  std::string_view text;
};

inline constexpr std::size_t kLinkInputsMax = 4096;

// One text with all functions and variables of the inputs.
//
// - A `.extern` name is the one that another input defines. What runs everywhere without a
//   definition stays `.extern`: vprintf, malloc, free, __assertfail, and shared memory of a size
//   that the launch decides. The synchronisation of a grid (cudaCGGetIntrinsicHandle,
//   cudaCGSynchronize, of cudadevrt) is defined here. Any other `.extern` name is rejected.
// - So is what kernels that start kernels call (child_kernels.h). A kernel's name as a value is
//   then a variable that stands for it.
// - Of several `.weak` definitions the first counts, of `.common` variables the largest, and a
//   definition that is neither comes before both. Two of those are rejected.
// - A name without linkage is its input's own. Where another input has it, too, it gets a number.
// - `.version` and `.target` are the newest of all.
// - Kernels get `.maxnreg registers_most` where they have none; 0: no limit.
//
// Fails with kInvalidArgument (the input's name, then the parser's sentence or the symbol) and
// kLimitExceeded. Thread-safe.
Result<std::string> Link(std::span<const LinkInput> inputs, unsigned registers_most = 0);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_LINK_LINKER_H_
