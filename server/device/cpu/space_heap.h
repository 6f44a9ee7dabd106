// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_SPACE_HEAP_H_
#define GPUSHARED_SERVER_DEVICE_CPU_SPACE_HEAP_H_

#include <atomic>
#include <memory>

#include "gpushared/mutex.h"
#include "gpushared/status.h"

#include "server/device/cpu/address_range.h"
#include "server/device/cpu/executor/device_heap.h"

namespace gpushared::device {

// Heap for one client's kernels, shared by all modules of the client. Created when the client first
// loads a module with a kernel that allocates, or sets the size of the heap (default:
// kDeviceHeapBytes). Counts against the quota from its creation until the space is destroyed.
//
// Thread-safe. Uses the range, which must outlive it.
class SpaceHeap {
 public:
  explicit SpaceHeap(AddressRange& range) : range_(range) {}
  SpaceHeap(const SpaceHeap&) = delete;
  SpaceHeap& operator=(const SpaceHeap&) = delete;
  ~SpaceHeap();

  // Creates the heap unless it exists.
  Status Make() GPUSHARED_EXCLUDES(mutex_);
  // Creates a heap of this size. Replaces an existing one if no kernel has used it.
  Status SetBytes(std::uint64_t bytes) GPUSHARED_EXCLUDES(mutex_);
  // Returns the heap for a kernel that starts; null if there is none. If `allocates`, the current
  // heap becomes permanent. Before that, kernels that do not allocate get null.
  executor::DeviceHeap* ForKernel(bool allocates) GPUSHARED_EXCLUDES(mutex_);
  bool exists() const GPUSHARED_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return heap_ != nullptr;
  }
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  Status MakeLocked(std::uint64_t bytes) GPUSHARED_REQUIRES(mutex_);

  AddressRange& range_;
  mutable Mutex mutex_;
  // Size of the heap, also for messages.
  std::atomic<std::uint64_t> bytes_ = executor::kDeviceHeapBytes;
  AddressRange::Block block_ GPUSHARED_GUARDED_BY(mutex_);  // Empty before Make.
  std::unique_ptr<executor::DeviceHeap> heap_ GPUSHARED_GUARDED_BY(mutex_);
  // Stored with release once a kernel uses the heap, after which the members above no longer
  // change; loads acquire.
  std::atomic<executor::DeviceHeap*> used_ = nullptr;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_SPACE_HEAP_H_
