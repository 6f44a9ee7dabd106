// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_CODE_MAKER_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_CODE_MAKER_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/result.h"

#include "server/device/code_compiler.h"
#include "server/device/cuda/cuda_context.h"

namespace gpushared::device::cuda {

// Compiles for one GPU, either synchronously or in the background.
//
// Thread-safe.
class CodeMaker {
 public:
  // `note`: reports messages for operators, from any thread. `architecture`: "sm_90"; may be empty.
  CodeMaker(std::shared_ptr<CudaContext> context, std::unique_ptr<CodeCompiler> compiler,
            std::string architecture, std::function<void(const std::string&)> note);
  CodeMaker(const CodeMaker&) = delete;
  CodeMaker& operator=(const CodeMaker&) = delete;
  // Drops waiting jobs and cancels the running compilation.
  ~CodeMaker();

  // `target`: the module's .target, because text for sm_90a can only be compiled for sm_90a.
  Result<std::vector<std::byte>> Compile(std::string_view ptx, std::string_view target) {
    return compiler_->Compile(ptx, ArchitectureFor(target));
  }
  std::optional<std::vector<std::byte>> Find(std::string_view ptx, std::string_view target) {
    return compiler_->Find(ptx, ArchitectureFor(target));
  }
  // Jobs run sequentially on a separate thread. The thread then calls `done`, after a successful
  // compilation in an idle window. A job that is no longer `wanted` when it is dequeued is skipped,
  // and its `done` is not called. If kJobsMax wanted jobs are waiting, CompileLater calls `done`
  // with kLimitExceeded at once, on the calling thread.
  struct Job {
    std::string ptx, target;
    std::function<bool()> wanted;
    std::function<void(Result<std::vector<std::byte>> code)> done;
  };
  static constexpr std::size_t kJobsMax = 64;
  void CompileLater(Job job);

  void Note(const std::string& text) const {
    if (note_) note_(text);
  }

 private:
  std::string ArchitectureFor(std::string_view target) const;
  void Run();

  const std::shared_ptr<CudaContext> context_;
  const std::unique_ptr<CodeCompiler> compiler_;
  const std::string architecture_;
  const std::function<void(const std::string&)> note_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_ GPUSHARED_GUARDED_BY(mutex_);
  bool is_ending_ GPUSHARED_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last member, because it uses the others.
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CODE_MAKER_H_
