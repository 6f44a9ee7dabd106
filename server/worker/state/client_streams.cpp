// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/client_streams.h"

namespace gpushared::server {

void ClientStreams::Append(std::uint32_t slot) {
  StreamState& state = streams_[slab_[slot].stream];
  slab_[slot].next = kNoSlot;
  if (state.back == kNoSlot) {
    state.front = slot;
  } else {
    slab_[state.back].next = slot;
  }
  state.back = slot;
  if (state.next == kNoSlot) state.next = slot;
}

std::uint32_t ClientStreams::PopFront(std::uint32_t stream) {
  StreamState& state = streams_[stream];
  const std::uint32_t slot = state.front, behind = slab_[slot].next;
  if (state.next == slot) state.next = behind;
  state.front = behind;
  if (behind == kNoSlot) state.back = kNoSlot;
  return slot;
}

bool ClientStreams::Cut(std::uint32_t slot) {
  CommandSlot& whole = slab_[slot];
  if (!slab_.has_free()) {
    std::uint32_t& command_awaiting_slot = streams_[whole.stream].command_awaiting_slot;
    if (command_awaiting_slot == kNoSlot) ++streams_awaiting_slot_;
    command_awaiting_slot = slot;
    return false;
  }
  const std::uint32_t behind = slab_.Cut(slot);
  CommandSlot& rest = slab_[behind];
  rest.stream = whole.stream;
  rest.kind = whole.kind;
  rest.sequence = whole.sequence;
  rest.taken = whole.taken;
  rest.epoch = whole.epoch;
  rest.graph = whole.graph;
  if (whole.reach() != nullptr) rest.SetReach(*whole.reach());
  rest.end_node = whole.end_node;
  rest.goes_singly = whole.goes_singly;
  rest.next = whole.next;
  whole.next = behind;
  StreamState& state = streams_[whole.stream];
  if (state.back == slot) state.back = behind;
  return true;
}

bool ClientStreams::MarkNextAwaitingSlot() {
  do {
    last_marked_ = (last_marked_ + 1) % ipc::kStreamsMax;
  } while (streams_[last_marked_].command_awaiting_slot == kNoSlot);
  streams_[last_marked_].command_awaiting_slot = kNoSlot;
  --streams_awaiting_slot_;
  MarkToSettle(last_marked_);
  return true;
}

void ClientStreams::AddWaiter(std::uint32_t target, std::uint32_t waiter) {
  StreamState& waiting = streams_[waiter];
  if (waiting.waits_on == target) return;
  if (waiting.waits_on != kNoStream) {
    // An earlier wait of `waiter` was skipped because the stream `waiter` failed, so the stream is
    // still in another list.
    std::uint32_t* link = &streams_[waiting.waits_on].first_waiter;
    while (*link != waiter) link = &streams_[*link].next_waiter;
    *link = waiting.next_waiter;
  }
  waiting.waits_on = target;
  waiting.next_waiter = streams_[target].first_waiter;
  streams_[target].first_waiter = waiter;
}

void ClientStreams::WakeThem(std::uint32_t target) {
  std::uint32_t waiter = streams_[target].first_waiter;
  streams_[target].first_waiter = kNoStream;
  while (waiter != kNoStream) {
    StreamState& waiting = streams_[waiter];
    const std::uint32_t following = waiting.next_waiter;
    waiting.next_waiter = kNoStream;
    waiting.waits_on = kNoStream;
    MarkToSettle(waiter);
    waiter = following;
  }
}

}  // namespace gpushared::server
