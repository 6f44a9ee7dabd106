// SPDX-License-Identifier: Apache-2.0
#include "server/worker/stream_queue.h"

namespace gpushared::server {

void AddWaiter(ClientState& client, std::uint32_t target, std::uint32_t waiter) {
  StreamState& waiting = client.streams[waiter];
  // A stream waits at its first unsatisfied command only, so for one stream at a time.
  if (waiting.is_waiting) return;
  waiting.is_waiting = true;
  waiting.next_waiter = client.streams[target].first_waiter;
  client.streams[target].first_waiter = waiter;
}

void WakeWaiters(ClientState& client, std::uint32_t target) {
  std::uint32_t waiter = client.streams[target].first_waiter;
  client.streams[target].first_waiter = kNoStream;
  while (waiter != kNoStream) {
    StreamState& waiting = client.streams[waiter];
    const std::uint32_t following = waiting.next_waiter;
    waiting.next_waiter = kNoStream;
    waiting.is_waiting = false;
    client.MarkToSettle(waiter);
    waiter = following;
  }
}

}  // namespace gpushared::server
