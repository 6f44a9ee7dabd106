// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_SWAP_RESERVATION_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_SWAP_RESERVATION_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "gpushared/status.h"

#include "server/device/device.h"
#include "server/device/swap_store.h"

namespace gpushared::server {

// Reservation of a client in the swap store. Covers all of the mapped memory while the client holds
// more than its guarantee or is parked, and can therefore be evicted; at other times only the part
// that is swapped out. As a result, a full store is reported when memory is requested, and never
// makes a swap fail.
//
// Thread-compatible. Must be destroyed after the space that it covers.
class SwapReservation {
 public:
  SwapReservation(std::shared_ptr<device::SwapStore> store, std::uint64_t guaranteed_bytes)
      : store_(std::move(store)), guaranteed_bytes_(guaranteed_bytes) {}
  SwapReservation(const SwapReservation&) = delete;
  SwapReservation& operator=(const SwapReservation&) = delete;
  ~SwapReservation() { store_->GiveBack(reserved_bytes_); }

  // Adjusts the reservation to memory of this size. On error nothing changes.
  Status Cover(const device::SpaceUse& use, bool is_parked = false) {
    const bool can_be_evicted = is_parked || !IsWithinGuarantee(use);
    const std::uint64_t needed =
        can_be_evicted ? use.mapped_bytes : use.mapped_bytes - use.resident_bytes;
    if (needed > reserved_bytes_) {
      if (Status full = store_->Reserve(needed - reserved_bytes_); !full.ok()) return full;
    } else {
      store_->GiveBack(reserved_bytes_ - needed);
    }
    reserved_bytes_ = needed;
    return {};
  }
  bool IsWithinGuarantee(const device::SpaceUse& use) const {
    return use.mapped_bytes + use.pinned_bytes <= guaranteed_bytes_;
  }
  // Whether memory of this size may be swapped out.
  bool Covers(const device::SpaceUse& use) const { return use.mapped_bytes <= reserved_bytes_; }

 private:
  const std::shared_ptr<device::SwapStore> store_;
  const std::uint64_t guaranteed_bytes_;
  std::uint64_t reserved_bytes_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_SWAP_RESERVATION_H_
