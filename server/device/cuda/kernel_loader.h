// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_KERNEL_LOADER_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_KERNEL_LOADER_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "gpushared/mutex.h"

#include "server/device/cuda/cuda_context.h"

namespace gpushared::device::cuda {

// Loads kernels one after the other on a separate thread. Because the driver may take milliseconds
// and may wait for running work, kernels are loaded in idle windows.
// Clients are served round-robin, so one that launches thousands of kernels for the first time
// delays the others by at most one kernel.
//
// Thread-safe.
class KernelLoader {
 public:
  // `urgency` applies to all loads. A load can be cancelled until it starts in an idle window.
  KernelLoader(std::shared_ptr<CudaContext> context, Urgency urgency);
  KernelLoader(const KernelLoader&) = delete;
  KernelLoader& operator=(const KernelLoader&) = delete;
  // Drops waiting loads.
  ~KernelLoader();

  // `load` is called on the loader's thread with the context current, unless the context is dead.
  // All owners of a `client` share its round-robin turn.
  void Load(const void* client, const void* owner, std::function<void()> load);
  // After this call, no load of the owner is called.
  void Forget(const void* owner);

 private:
  struct Job {
    const void* owner = nullptr;
    std::function<void()> load;
  };
  void Run();
  // Loads one kernel after the other in a single idle window, up to its maximum duration.
  void LoadInWindow();
  bool LoadNext();
  // Takes the first job of the next client. There must be one.
  Job TakeNext() GPUSHARED_REQUIRES(mutex_);

  const std::shared_ptr<CudaContext> context_;
  const Urgency urgency_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::map<const void*, std::deque<Job>> jobs_
      GPUSHARED_GUARDED_BY(mutex_);                             // By client; no list is empty.
  std::deque<const void*> turns_ GPUSHARED_GUARDED_BY(mutex_);  // Each client in jobs_ once.
  const void* running_ GPUSHARED_GUARDED_BY(mutex_) = nullptr;  // Owner of the running load.
  bool is_ending_ GPUSHARED_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last member, because it uses the others.
};

// Separate loaders, so that kernels of the high class do not queue behind others, and preemptible
// forms that no launch waits for are loaded only while there are no urgent requests. If a launch
// waits for a kernel, the kernel is loaded despite urgent requests, because the launch already
// occupies a place among the submitted work.
struct KernelLoaders {
  explicit KernelLoaders(const std::shared_ptr<CudaContext>& context)
      : urgent(context, Urgency::kHigh),
        other(context, Urgency::kAwaited),
        unhurried(context, Urgency::kUnhurried) {}
  void Forget(const void* owner) {
    urgent.Forget(owner);
    other.Forget(owner);
    unhurried.Forget(owner);
  }

  KernelLoader urgent, other, unhurried;
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_KERNEL_LOADER_H_
