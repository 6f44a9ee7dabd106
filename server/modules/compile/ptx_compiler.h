// SPDX-License-Identifier: Apache-2.0
// PTX to machine code without a compiler in this process: what clients write may make one loop,
// grow or crash.

#ifndef GPUSHARED_SERVER_MODULES_COMPILE_PTX_COMPILER_H_
#define GPUSHARED_SERVER_MODULES_COMPILE_PTX_COMPILER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/result.h"

#include "ipc/unique_fd.h"
#include "server/modules/compile/code_cache.h"
#include "server/modules/compile/sandbox.h"

namespace gpushared::compile {

struct PtxCompilerOptions {
  std::string program;  // Path of ptxas; empty: where CUDA is usually installed.
  SandboxLimits limits;
  std::string cache_directory;  // Empty: nothing is kept.
  std::uint64_t cache_bytes_max = std::uint64_t{1} << 30;
  // What an operator should know; may be empty. Any thread.
  std::function<void(const std::string&)> warn;
};

// Thread-safe.
class PtxCompiler {
 public:
  // kNotFound when there is no compiler. Starts it once, for its version.
  static Result<std::unique_ptr<PtxCompiler>> Create(PtxCompilerOptions options);

  // `architecture`: "sm_90". kInvalidArgument, with the compiler's words, for PTX that it rejects;
  // kLimitExceeded for what took too long or too much; kCancelled after Abandon.
  Result<std::vector<std::byte>> Compile(std::string_view ptx, std::string_view architecture);
  // An earlier result that is still kept.
  std::optional<std::vector<std::byte>> Find(std::string_view ptx, std::string_view architecture);
  // Ends what is being compiled; nothing is compiled any more.
  void Abandon();

  const std::string& version() const { return version_; }
  const std::string& program() const { return options_.program; }

 private:
  PtxCompiler(PtxCompilerOptions options, std::string version, ipc::UniqueFd abandoned)
      : options_(std::move(options)),
        version_(std::move(version)),
        abandoned_(std::move(abandoned)) {}
  std::optional<std::vector<std::byte>> FindKept(const Digest& key);
  Digest GetKey(std::string_view ptx, std::string_view architecture) const;
  void Warn(const Status& why) const;

  const PtxCompilerOptions options_;
  const std::string version_;
  const ipc::UniqueFd abandoned_;  // An eventfd.
  Mutex mutex_;
  std::optional<CodeCache> cache_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::compile

#endif  // GPUSHARED_SERVER_MODULES_COMPILE_PTX_COMPILER_H_
