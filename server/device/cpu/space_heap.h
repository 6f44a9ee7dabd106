// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_SPACE_HEAP_H_
#define GPUSHARED_SERVER_DEVICE_CPU_SPACE_HEAP_H_

#include <atomic>
#include <memory>

#include "gpushared/mutex.h"
#include "gpushared/status.h"

#include "server/device/cpu/address_range.h"
#include "server/executor/device_heap.h"

namespace gpushared::device {

// The heap of one client's kernels: kDeviceHeapBytes of its range, counted against its quota from
// the first module that allocates until the space ends. All its modules share it.
//
// Thread-safe. Uses the range, which must outlive it.
class SpaceHeap {
 public:
  explicit SpaceHeap(AddressRange& range) : range_(range) {}
  SpaceHeap(const SpaceHeap&) = delete;
  SpaceHeap& operator=(const SpaceHeap&) = delete;
  ~SpaceHeap();

  // Makes the heap unless there is one.
  Status Make();
  // Null before that. Stays as long as this object.
  executor::DeviceHeap* heap() const;

 private:
  AddressRange& range_;
  Mutex mutex_;
  AddressRange::Block block_ GPUSHARED_GUARDED_BY(mutex_);  // Empty before Make.
  std::unique_ptr<executor::DeviceHeap> heap_ GPUSHARED_GUARDED_BY(mutex_);
  // Stored with release once all of the above stays as it is; loads acquire.
  std::atomic<executor::DeviceHeap*> made_ = nullptr;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_SPACE_HEAP_H_
