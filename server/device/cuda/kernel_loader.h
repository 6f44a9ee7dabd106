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

// Loads kernels that launches wait for, one after the other, on a thread of its own: the driver may
// take milliseconds, and may wait for what runs, so it is done in quiet moments. Clients take
// turns: one that launches thousands of kernels for the first time holds nobody's up by more than
// one.
//
// Thread-safe.
class KernelLoader {
 public:
  // `urgency`: of all that it loads, which can be forgotten until the moment has come.
  KernelLoader(std::shared_ptr<CudaContext> context, Urgency urgency);
  KernelLoader(const KernelLoader&) = delete;
  KernelLoader& operator=(const KernelLoader&) = delete;
  // Drops what waits.
  ~KernelLoader();

  // `load` is called on the thread, where the context is current if it can be. `client` takes turns
  // with others, however many owners it has.
  void Load(const void* client, const void* owner, std::function<void()> load);
  // Nothing of the owner's is called from now on.
  void Forget(const void* owner);

 private:
  struct Job {
    const void* owner = nullptr;
    std::function<void()> load;
  };
  void Run();
  // One after the other in one quiet moment, while that is not too old.
  void LoadInMoment();
  bool LoadNext();
  // The first of whose turn it is. There is one.
  Job TakeNext() GPUSHARED_REQUIRES(mutex_);

  const std::shared_ptr<CudaContext> context_;
  const Urgency urgency_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::map<const void*, std::deque<Job>> jobs_
      GPUSHARED_GUARDED_BY(mutex_);                             // By client; not empty.
  std::deque<const void*> turns_ GPUSHARED_GUARDED_BY(mutex_);  // Each client of these, once.
  const void* running_ GPUSHARED_GUARDED_BY(mutex_) = nullptr;  // Its owner.
  bool is_ending_ GPUSHARED_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // The last member: it uses the others.
};

// Kernels of the high class are not loaded behind others, and forms that nobody waits for not ahead
// of urgent requests. A launch that waits has its place in the window, so its kernel does not.
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
