// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/kernel_loader.h"

#include <utility>

namespace gpushared::device::cuda {

KernelLoader::KernelLoader(std::shared_ptr<CudaContext> context, std::function<void()> await_quiet)
    : context_(std::move(context)),
      await_quiet_(std::move(await_quiet)),
      thread_([this] { Run(); }) {}

KernelLoader::~KernelLoader() {
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
    jobs_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

void KernelLoader::Load(const void* owner, std::function<void()> load) {
  const MutexLock lock(mutex_);
  jobs_.push_back({owner, std::move(load)});
  changed_.notify_all();
}

void KernelLoader::Forget(const void* owner) {
  MutexLock lock(mutex_);
  std::erase_if(jobs_, [owner](const Job& job) { return job.owner == owner; });
  changed_.wait(lock.waitable(), [&]() GPUSHARED_REQUIRES(mutex_) { return running_ != owner; });
}

void KernelLoader::Run() {
  MutexLock lock(mutex_);
  for (;;) {
    changed_.wait(lock.waitable(),
                  [this]() GPUSHARED_REQUIRES(mutex_) { return is_ending_ || !jobs_.empty(); });
    if (!is_ending_ && await_quiet_) {
      lock.Unlock();
      await_quiet_();
      lock.Lock();
    }
    if (is_ending_) return;
    if (jobs_.empty()) continue;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    running_ = job.owner;
    lock.Unlock();
    // A dead context says so at the call.
    (void)context_->Bind();
    job.load();
    lock.Lock();
    running_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace gpushared::device::cuda
