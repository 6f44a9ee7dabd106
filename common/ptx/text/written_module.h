// SPDX-License-Identifier: Apache-2.0
// First stage of Parse (parser.h): the syntax.

#ifndef GPUSHARED_COMMON_PTX_TEXT_WRITTEN_MODULE_H_
#define GPUSHARED_COMMON_PTX_TEXT_WRITTEN_MODULE_H_

#include <string_view>
#include <vector>

#include "gpushared/result.h"

#include "common/ptx/text/aliases.h"
#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Module with its original aliases, vector registers, and register parameters.
struct WrittenModule {
  Module module;
  std::vector<Alias> aliases;
};

// `text`: at most kTextBytesMax bytes, without NUL. Errors as in Parse.
Result<WrittenModule> ParseAsWritten(std::string_view text);

// Parses the text of a directive such as ".callprototype (.param .b32 _) _ (.param .b64 _);" to a
// function without a name and body.
Result<Function> ParsePrototype(std::string_view directive_text);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_WRITTEN_MODULE_H_
