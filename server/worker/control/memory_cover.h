// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_MEMORY_COVER_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_MEMORY_COVER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "gpushared/status.h"

#include "server/device/device.h"
#include "server/device/step_store.h"

namespace gpushared::server {

// Room in the store for all of a client's memory, while it holds more than its guarantee and may be
// moved out. So what is full says so when memory is asked for, and no move fails for it.
//
// Thread-compatible. Destroyed after the space whose memory it covers.
class MemoryCover {
 public:
  MemoryCover(std::shared_ptr<device::StepStore> store, std::uint64_t guaranteed_bytes)
      : store_(std::move(store)), guaranteed_bytes_(guaranteed_bytes) {}
  MemoryCover(const MemoryCover&) = delete;
  MemoryCover& operator=(const MemoryCover&) = delete;
  ~MemoryCover() { store_->GiveBack(reserved_bytes_); }

  // Reserves what memory of that size needs, or gives back what it does not need. An error changes
  // nothing.
  Status Cover(const device::SpaceUse& use) {
    const std::uint64_t needed =
        IsSettled(use) ? use.mapped_bytes - use.resident_bytes : use.mapped_bytes;
    if (needed > reserved_bytes_) {
      if (Status full = store_->Reserve(needed - reserved_bytes_); !full.ok()) return full;
    } else {
      store_->GiveBack(reserved_bytes_ - needed);
    }
    reserved_bytes_ = needed;
    return {};
  }
  // Within the guarantee.
  bool IsSettled(const device::SpaceUse& use) const {
    return use.mapped_bytes + use.pinned_bytes <= guaranteed_bytes_;
  }
  // Whether memory of that size may be moved out.
  bool Covers(const device::SpaceUse& use) const { return use.mapped_bytes <= reserved_bytes_; }

 private:
  const std::shared_ptr<device::StepStore> store_;
  const std::uint64_t guaranteed_bytes_;
  std::uint64_t reserved_bytes_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_MEMORY_COVER_H_
