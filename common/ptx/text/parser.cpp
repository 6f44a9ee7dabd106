// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/parser.h"

#include <string>
#include <utility>

#include "common/ptx/text/aliases.h"
#include "common/ptx/text/register_parameters.h"
#include "common/ptx/text/vector_registers.h"
#include "common/ptx/text/written_module.h"

namespace gpushared::ptx {

Result<Module> Parse(std::string_view text) {
  // The driver reads PTX as a C string, so anything after a NUL is ignored.
  text = text.substr(0, text.find('\0'));
  if (text.size() > kTextBytesMax) {
    return Status(StatusCode::kLimitExceeded, "ptx: text of " + std::to_string(text.size()) +
                                                  " bytes, at most " +
                                                  std::to_string(kTextBytesMax) + " are read");
  }
  Result<WrittenModule> written = ParseAsWritten(text);
  if (!written) return written.status();
  Module& module = written->module;
  if (Status resolved = ResolveAliases(module, written->aliases); !resolved.ok()) return resolved;
  if (Status split = SplitVectorRegisters(module); !split.ok()) return split;
  if (Status lowered = LowerRegisterParameters(module); !lowered.ok()) return lowered;
  return std::move(module);
}

}  // namespace gpushared::ptx
