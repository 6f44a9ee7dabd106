// SPDX-License-Identifier: Apache-2.0
// The first step of Parse (parser.h): the syntax.

#ifndef GPUSHARED_COMMON_PTX_TEXT_WRITTEN_MODULE_H_
#define GPUSHARED_COMMON_PTX_TEXT_WRITTEN_MODULE_H_

#include <string_view>
#include <vector>

#include "gpushared/result.h"

#include "common/ptx/text/aliases.h"
#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// With the aliases, vectors of registers, and parameters in registers that it was written with.
struct WrittenModule {
  Module module;
  std::vector<Alias> aliases;
};

// `text`: at most kTextBytesMax bytes, without NUL. Errors as Parse.
Result<WrittenModule> ParseAsWritten(std::string_view text);

// Results and parameters of ".callprototype (.param .b32 _) _ (.param .b64 _);", the text of a
// directive: a function without a name and a body.
Result<Function> ParsePrototype(std::string_view directive_text);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_WRITTEN_MODULE_H_
