// SPDX-License-Identifier: Apache-2.0
// PTX text to Module. The text may come from anyone.

#ifndef GPUSHARED_COMMON_PTX_TEXT_PARSER_H_
#define GPUSHARED_COMMON_PTX_TEXT_PARSER_H_

#include <string_view>

#include "gpushared/result.h"

#include "common/ptx/text/limits.h"
#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Reads to the end of the text or to its first NUL. Instructions and directives it does
// not know are kept; .loc, .file, .section and the option of .target that promises them
// (debug information) are dropped. Errors are kInvalidArgument (or kLimitExceeded):
// "ptx: line L column C: ..., near 'token'".
Result<Module> Parse(std::string_view text);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_PARSER_H_
