// SPDX-License-Identifier: Apache-2.0
// Parses untrusted PTX text to a Module.

#ifndef GPUSHARED_COMMON_PTX_TEXT_PARSER_H_
#define GPUSHARED_COMMON_PTX_TEXT_PARSER_H_

#include <string_view>

#include "gpushared/result.h"

#include "common/ptx/text/limits.h"
#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Parses up to the end of the text or the first NUL. Unknown instructions and directives are
// preserved; debug information (.loc, .file, .section and the .target option that announces it) is
// dropped. Fails with kInvalidArgument or kLimitExceeded: "ptx: line L column C: ..., near
// 'token'".
Result<Module> Parse(std::string_view text);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_PARSER_H_
