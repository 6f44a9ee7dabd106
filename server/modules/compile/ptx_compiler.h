// SPDX-License-Identifier: Apache-2.0
// Compiles PTX to machine code in a separate process, because a client's text may make the compiler
// loop, exhaust memory or crash.

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
  std::string program;  // Path of ptxas; if empty, the usual installation of CUDA.
  SandboxLimits limits;
  std::string cache_directory;  // If empty, results are not cached.
  std::uint64_t cache_bytes_max = std::uint64_t{1} << 30;
  // Receives messages for operators, from any thread; may be empty.
  std::function<void(const std::string&)> warn;
};

// Thread-safe.
class PtxCompiler {
 public:
  // Runs the compiler once to get its version. Fails with kNotFound if there is no compiler.
  static Result<std::unique_ptr<PtxCompiler>> Create(PtxCompilerOptions options);

  // Compiles for an `architecture` such as "sm_90". Fails with kInvalidArgument and the compiler's
  // message if the compiler exits with an error, kLimitExceeded if compiling took too much time or
  // its output is too large, kInternal if a signal ended the compiler, and kCancelled after
  // Abandon. A compiler that reaches its memory limit exits with an error or ends with a signal.
  Result<std::vector<std::byte>> Compile(std::string_view ptx, std::string_view architecture);
  // Returns an earlier result if that is still cached.
  std::optional<std::vector<std::byte>> Find(std::string_view ptx, std::string_view architecture);
  // Cancels running compilations and rejects later ones.
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
