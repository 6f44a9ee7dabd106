// SPDX-License-Identifier: Apache-2.0
#include "server/worker/device_thread/stream_queue.h"

namespace gpushared::server {

void AddWaiter(ClientState& client, std::uint32_t target, std::uint32_t waiter) {
  StreamState& waiting = client.streams[waiter];
  if (waiting.waits_on == target) return;
  if (waiting.waits_on != kNoStream) {
    // The wait it was linked for was skipped when its stream failed.
    std::uint32_t* link = &client.streams[waiting.waits_on].first_waiter;
    while (*link != waiter) link = &client.streams[*link].next_waiter;
    *link = waiting.next_waiter;
  }
  waiting.waits_on = target;
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
    waiting.waits_on = kNoStream;
    client.MarkToSettle(waiter);
    waiter = following;
  }
}

}  // namespace gpushared::server
