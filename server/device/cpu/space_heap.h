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

// The heap of one client's kernels, kDeviceHeapBytes of its range unless its client sets another
// size. It counts against the quota from the first module that allocates, or from that setting,
// until the space ends. All its modules share it.
//
// Thread-safe. Uses the range, which must outlive it.
class SpaceHeap {
 public:
  explicit SpaceHeap(AddressRange& range) : range_(range) {}
  SpaceHeap(const SpaceHeap&) = delete;
  SpaceHeap& operator=(const SpaceHeap&) = delete;
  ~SpaceHeap();

  // Makes the heap unless there is one.
  Status Make() GPUSHARED_EXCLUDES(mutex_);
  // Makes one of this size, in place of one that no kernel has used.
  Status SetBytes(std::uint64_t bytes) GPUSHARED_EXCLUDES(mutex_);
  // For a kernel that begins to run. One that allocates uses it from then on, for good; null before
  // the first of these, or where it has not been made.
  executor::DeviceHeap* ForKernel(bool allocates) GPUSHARED_EXCLUDES(mutex_);
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  Status MakeLocked(std::uint64_t bytes) GPUSHARED_REQUIRES(mutex_);

  AddressRange& range_;
  Mutex mutex_;
  std::atomic<std::uint64_t> bytes_ = executor::kDeviceHeapBytes;  // For messages, too.
  AddressRange::Block block_ GPUSHARED_GUARDED_BY(mutex_);         // Empty before Make.
  std::unique_ptr<executor::DeviceHeap> heap_ GPUSHARED_GUARDED_BY(mutex_);
  // Stored with release once a kernel uses it, so that all of the above stays as it is; loads
  // acquire.
  std::atomic<executor::DeviceHeap*> used_ = nullptr;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_SPACE_HEAP_H_
