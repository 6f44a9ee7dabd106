// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_DEVICE_THREAD_STREAM_QUEUE_H_
#define GPUSHARED_SERVER_WORKER_DEVICE_THREAD_STREAM_QUEUE_H_

#include <cstdint>

#include "server/worker/device_thread/client_state.h"

namespace gpushared::server {

// The links of one stream's commands; what they mean is the dispatcher's business.
//
// Confined to the device thread.
class StreamQueue {
 public:
  StreamQueue(ClientState& client, std::uint32_t stream)
      : slab_(client.slab), state_(client.streams[stream]) {}

  void Append(std::uint32_t slot) {
    slab_[slot].next = kNoSlot;
    if (state_.back == kNoSlot) {
      state_.front = slot;
    } else {
      slab_[state_.back].next = slot;
    }
    state_.back = slot;
    if (state_.next == kNoSlot) state_.next = slot;
  }

  // Unlinks the front and returns it; it is no longer in the queue but not yet freed.
  std::uint32_t PopFront() {
    const std::uint32_t slot = state_.front;
    if (state_.next == slot) state_.next = slab_[slot].next;
    state_.front = slab_[slot].next;
    if (state_.front == kNoSlot) state_.back = kNoSlot;
    return slot;
  }

  // The next command was offered, or has nothing to offer.
  void PassNext() { state_.next = slab_[state_.next].next; }

 private:
  CommandSlab& slab_;
  StreamState& state_;
};

// Links `waiter` into the list of streams that `target` wakes when it advances.
void AddWaiter(ClientState& client, std::uint32_t target, std::uint32_t waiter);
// Empties that list; all in it are to be settled.
void WakeWaiters(ClientState& client, std::uint32_t target);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_DEVICE_THREAD_STREAM_QUEUE_H_
