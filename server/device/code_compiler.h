// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CODE_COMPILER_H_
#define GPUSHARED_SERVER_DEVICE_CODE_COMPILER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::device {

// Compiles PTX for a GPU driver outside of this process, because the text comes from a client and
// cannot be trusted.
//
// Thread-safe.
class CodeCompiler {
 public:
  virtual ~CodeCompiler() = default;
  // Compiles the text for an `architecture` such as "sm_90"; may take long.
  virtual Result<std::vector<std::byte>> Compile(std::string_view ptx,
                                                 std::string_view architecture) = 0;
  // Returns the result of an earlier compilation if that is still cached. Does not block.
  virtual std::optional<std::vector<std::byte>> Find(std::string_view ptx,
                                                     std::string_view architecture) = 0;
  // Cancels running compilations and rejects all later ones with kCancelled.
  virtual void Abandon() = 0;
};

// Message about the features that a GPU device lacks without a compiler.
inline constexpr std::string_view kWithoutCompiler =
    "no kernel of a GPU can be stopped, and modules of other users whose kernels are isolated are "
    "rejected";

// Creates a compiler. Returns null if none is available; the reason has then already been reported.
using MakeCodeCompiler = std::function<std::unique_ptr<CodeCompiler>()>;

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CODE_COMPILER_H_
