// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/kernel_loader.h"

#include <utility>

namespace gpushared::device::cuda {

KernelLoader::KernelLoader(std::shared_ptr<CudaContext> context, Urgency urgency)
    : context_(std::move(context)), urgency_(urgency), thread_([this] { Run(); }) {}

KernelLoader::~KernelLoader() {
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
    jobs_.clear();
    turns_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

void KernelLoader::Load(const void* client, const void* owner, std::function<void()> load) {
  const MutexLock lock(mutex_);
  std::deque<Job>& jobs = jobs_[client];
  if (jobs.empty()) turns_.push_back(client);
  jobs.push_back({owner, std::move(load)});
  changed_.notify_all();
}

void KernelLoader::Forget(const void* owner) {
  MutexLock lock(mutex_);
  for (auto& [client, jobs] : jobs_) {
    std::erase_if(jobs, [owner](const Job& job) { return job.owner == owner; });
  }
  std::erase_if(
      turns_, [&](const void* client) GPUSHARED_REQUIRES(mutex_) { return jobs_[client].empty(); });
  std::erase_if(jobs_, [](const auto& each) { return each.second.empty(); });
  changed_.wait(lock.waitable(), [&]() GPUSHARED_REQUIRES(mutex_) { return running_ != owner; });
}

KernelLoader::Job KernelLoader::TakeNext() {
  const void* const client = turns_.front();
  turns_.pop_front();
  const auto found = jobs_.find(client);
  Job job = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) {
    jobs_.erase(found);
  } else {
    turns_.push_back(client);
  }
  return job;
}

void KernelLoader::Run() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      changed_.wait(lock.waitable(),
                    [this]() GPUSHARED_REQUIRES(mutex_) { return is_ending_ || !jobs_.empty(); });
      if (is_ending_) return;
    }
    LoadInWindow();
  }
}

void KernelLoader::LoadInWindow() {
  const IdleWindow window(context_->idle_windows(), urgency_);
  while (LoadNext() && window.IsYoung()) {
  }
}

bool KernelLoader::LoadNext() {
  MutexLock lock(mutex_);
  if (is_ending_ || jobs_.empty()) return false;
  const Job job = TakeNext();
  running_ = job.owner;
  lock.Unlock();
  // The result is ignored, because the driver calls of `load` fail if the context is dead.
  (void)context_->Bind();
  job.load();
  lock.Lock();
  running_ = nullptr;
  changed_.notify_all();
  return true;
}

}  // namespace gpushared::device::cuda
