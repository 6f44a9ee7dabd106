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

// PTX to what a driver loads, outside of this process: clients wrote the text.
//
// Thread-safe.
class CodeCompiler {
 public:
  virtual ~CodeCompiler() = default;
  // May take long. `architecture`: "sm_90".
  virtual Result<std::vector<std::byte>> Compile(std::string_view ptx,
                                                 std::string_view architecture) = 0;
  // What was compiled before and is still kept; at once.
  virtual std::optional<std::vector<std::byte>> Find(std::string_view ptx,
                                                     std::string_view architecture) = 0;
  // Ends what is being compiled and rejects all that is asked for later: kCancelled.
  virtual void Abandon() = 0;
};

// The consequence for a GPU.
inline constexpr std::string_view kWithoutCompiler =
    "no kernel of a GPU can be stopped, and modules of other users whose kernels are isolated are "
    "rejected";

// Null where there is no compiler; who made the function has said why.
using MakeCodeCompiler = std::function<std::unique_ptr<CodeCompiler>()>;

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CODE_COMPILER_H_
