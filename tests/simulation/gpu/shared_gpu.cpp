// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/gpu/shared_gpu.h"

#include <algorithm>

namespace gpushared::simulation {

void SharedGpu::Add(Event event) {
  event.order = orders_++;
  events_.push(event);
}

void SharedGpu::Submit(const Work& work, TimePoint called) {
  if (work.stream >= streams_.size()) streams_.resize(work.stream + 1);
  Stream& stream = streams_[work.stream];
  stream.items.push_back({work, called + costs_.launch_delay});
  if (stream.items.size() == 1) PrepareFront(work.stream, called);
}

void SharedGpu::PrepareFront(std::size_t number, TimePoint earliest) {
  Stream& stream = streams_[number];
  const Item& front = stream.items.front();
  stream.is_eligible = false;
  stream.is_stopped = false;
  stream.next_block = front.work.first_block;
  stream.running = 0;
  Add({.at = std::max(front.ready, earliest), .kind = Event::Kind::kEligible, .stream = number});
}

void SharedGpu::RequestStop(std::uint64_t id, TimePoint now) {
  for (std::size_t number = 0; number < streams_.size(); ++number) {
    for (const Item& item : streams_[number].items) {
      if (item.work.id != id || !item.work.stoppable) continue;
      Add({.at = now + costs_.stop_flag, .kind = Event::Kind::kStop, .stream = number, .id = id});
      return;
    }
  }
}

std::optional<SharedGpu::TimePoint> SharedGpu::next_event() const {
  if (events_.empty()) return {};
  return events_.top().at;
}

void SharedGpu::Advance(TimePoint now, std::vector<Finished>& finished) {
  while (!events_.empty() && events_.top().at <= now) {
    const Event event = events_.top();
    events_.pop();
    OnEvent(event, finished);
    Dispatch(event.at);
  }
}

void SharedGpu::OnEvent(const Event& event, std::vector<Finished>& finished) {
  if (event.kind == Event::Kind::kNotice) {
    finished.push_back({event.id, event.blocks});
    return;
  }
  Stream& stream = streams_[event.stream];
  switch (event.kind) {
    case Event::Kind::kEligible:
      stream.is_eligible = true;
      stream.turn = turns_++;
      break;
    case Event::Kind::kBlocksEnd:
      free_ += event.blocks;
      stream.running -= event.blocks;
      break;
    case Event::Kind::kStop:
      // Only its front can be stoppable and known to the server as running; one that has ended
      // meanwhile is not there any more.
      if (stream.items.empty() || stream.items.front().work.id != event.id) return;
      stream.is_stopped = true;
      break;
    case Event::Kind::kNotice:
      break;
  }
  EndFrontIfDone(event.stream, event.at);
}

void SharedGpu::EndFrontIfDone(std::size_t number, TimePoint now) {
  Stream& stream = streams_[number];
  if (!stream.is_eligible || stream.running > 0) return;
  const Work& work = stream.items.front().work;
  const bool has_more = stream.next_block < work.kernel.blocks;
  if (has_more && !stream.is_stopped) return;
  const TimePoint end = has_more ? now + costs_.drain : now;
  Add({.at = end + costs_.notice,
       .kind = Event::Kind::kNotice,
       .blocks = stream.next_block,
       .id = work.id});
  stream.items.pop_front();
  stream.is_eligible = false;
  if (!stream.items.empty()) PrepareFront(number, end + costs_.kernel_gap);
}

void SharedGpu::Dispatch(TimePoint now) {
  while (free_ > 0) {
    Stream* best = nullptr;
    for (Stream& stream : streams_) {
      if (!stream.is_eligible || stream.is_stopped ||
          stream.next_block == stream.items.front().work.kernel.blocks)
        continue;
      if (best == nullptr ||
          stream.items.front().work.priority > best->items.front().work.priority ||
          (stream.items.front().work.priority == best->items.front().work.priority &&
           stream.turn < best->turn))
        best = &stream;
    }
    if (best == nullptr) return;
    const Work& work = best->items.front().work;
    const std::uint32_t blocks = std::min(free_, work.kernel.blocks - best->next_block);
    best->next_block += blocks;
    best->running += blocks;
    free_ -= blocks;
    const Duration each = work.kernel.block_time + (work.stoppable ? costs_.claim : Duration());
    Add({.at = now + each,
         .kind = Event::Kind::kBlocksEnd,
         .stream = static_cast<std::size_t>(best - streams_.data()),
         .blocks = blocks});
  }
}

}  // namespace gpushared::simulation
