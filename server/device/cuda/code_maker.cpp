// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/code_maker.h"

#include <utility>

namespace gpushared::device::cuda {

CodeMaker::CodeMaker(std::shared_ptr<CudaContext> context, std::unique_ptr<CodeCompiler> compiler,
                     std::string architecture, std::function<void(const std::string&)> note)
    : context_(std::move(context)),
      compiler_(std::move(compiler)),
      architecture_(std::move(architecture)),
      note_(std::move(note)),
      thread_([this] { Run(); }) {}

CodeMaker::~CodeMaker() {
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
    jobs_.clear();
  }
  compiler_->Abandon();
  changed_.notify_one();
  thread_.join();
}

std::string CodeMaker::ArchitectureFor(std::string_view target) const {
  const std::string_view first = target.substr(0, target.find_first_of(" ,\t"));
  // "sm_90a", "sm_100f": features of this architecture that later ones need not support.
  const bool is_own = first.size() == architecture_.size() + 1 && first.starts_with(architecture_);
  return std::string(is_own ? first : architecture_);
}

void CodeMaker::CompileLater(Job job) {
  {
    const MutexLock lock(mutex_);
    if (jobs_.size() >= kJobsMax)
      std::erase_if(jobs_, [](const Job& one) { return !one.wanted(); });
    if (jobs_.size() < kJobsMax) {
      jobs_.push_back(std::move(job));
      return changed_.notify_one();
    }
  }
  job.done(Status(StatusCode::kLimitExceeded,
                  std::to_string(kJobsMax) + " modules wait for the compiler, which is the limit"));
}

void CodeMaker::Run() {
  MutexLock lock(mutex_);
  for (;;) {
    changed_.wait(lock.waitable(),
                  [this]() GPUSHARED_REQUIRES(mutex_) { return is_ending_ || !jobs_.empty(); });
    if (is_ending_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.Unlock();
    if (job.wanted()) {
      Result<std::vector<std::byte>> code = Compile(job.ptx, job.target);
      std::optional<IdleWindow> window;
      if (code.ok()) window.emplace(context_->idle_windows(), Urgency::kUnhurried);
      job.done(std::move(code));
    }
    lock.Lock();
  }
}

}  // namespace gpushared::device::cuda
