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

// Heap for one client's kernels, of kDeviceHeapBytes unless the client sets another size. Counts
// against the quota from the load of the first module that allocates, or from when the client sets
// the size, until the space is destroyed. Shared by all modules of the client.
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
  // Called when a kernel starts. A kernel that allocates makes the current heap permanent. Returns
  // null as long as no kernel has done that, or if there is no heap.
  executor::DeviceHeap* ForKernel(bool allocates) GPUSHARED_EXCLUDES(mutex_);
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  Status MakeLocked(std::uint64_t bytes) GPUSHARED_REQUIRES(mutex_);

  AddressRange& range_;
  Mutex mutex_;
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
