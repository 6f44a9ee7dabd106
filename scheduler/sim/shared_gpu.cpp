// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/shared_gpu.h"

#include <algorithm>
#include <utility>

namespace gpushared::simulation {

void SharedGpu::Add(Event event) {
  event.order = orders_++;
  events_.push(event);
}

SharedGpu::Duration SharedGpu::Draw(const std::vector<Duration>& seen, Duration otherwise) {
  return seen.empty() ? otherwise : seen[random_() % seen.size()];
}

void SharedGpu::Submit(const Work& work, TimePoint called) {
  if (work.stream >= streams_.size()) streams_.resize(work.stream + 1);
  Stream& stream = streams_[work.stream];
  const TimePoint ready = called + Draw(costs_.launch_delays, costs_.launch_delay);
  stream.items.push_back({.work = work, .ready = ready, .submission = submissions_++});
  if (stream.items.size() == 1) PrepareFront(work.stream, called);
}

void SharedGpu::PrepareFront(std::size_t number, TimePoint earliest) {
  Stream& stream = streams_[number];
  const Item& front = stream.items.front();
  stream.is_eligible = false;
  stream.is_stopped = false;
  stream.next_block = front.work.first_block;
  stream.running = 0;
  stream.gap = {};
  Add({.at = std::max(front.ready, earliest), .kind = Event::Kind::kEligible, .stream = number});
}

void SharedGpu::PrepareNext(std::size_t number, TimePoint end, TimePoint now) {
  const bool is_in_graph = streams_[number].items.front().work.kernel.follows_in_graph;
  const Duration gap = is_in_graph ? costs_.graph_gap : Draw(costs_.kernel_gaps, costs_.kernel_gap);
  if (order_ == StreamOrder::kEligible) return PrepareFront(number, end + gap);
  PrepareFront(number, end);
  Stream& stream = streams_[number];
  stream.gap = gap;
  // Runs at the same moment, before later work is considered.
  if (std::max(stream.items.front().ready, end) <= now) MakeEligible(stream);
}

void SharedGpu::MakeEligible(Stream& stream) {
  if (stream.is_eligible) return;
  stream.is_eligible = true;
  stream.turn = order_ == StreamOrder::kEligible ? turns_++ : stream.items.front().submission;
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
  }
}

void SharedGpu::OnEvent(const Event& event, std::vector<Finished>& finished) {
  if (event.kind == Event::Kind::kNotice) {
    finished.push_back({event.id, event.blocks});
    return;
  }
  Stream& stream = streams_[event.stream];
  if (event.kind == Event::Kind::kStop) {
    // Only the stream's front can be stoppable and known to the server as running. If it has ended
    // in the meantime, the stop has no effect.
    if (stream.items.empty() || stream.items.front().work.id != event.id) return;
    stream.is_stopped = true;
    EndFrontIfDone(event.stream, event.at);
    return;
  }
  const Kernel kernel = stream.items.front().work.kernel;
  const Engine engine = GetEngine(kernel);
  if (event.kind == Event::Kind::kEligible) {
    MakeEligible(stream);
  } else {
    room_[engine] += event.blocks * RoomOfBlock(kernel);
    stream.running -= event.blocks;
  }
  EndFrontIfDone(event.stream, event.at);
  Dispatch(engine, event.at);
}

void SharedGpu::EndFrontIfDone(std::size_t number, TimePoint now) {
  Stream& stream = streams_[number];
  if (!stream.is_eligible || stream.running > 0) return;
  const Work& work = stream.items.front().work;
  const bool has_more = stream.next_block < work.kernel.blocks;
  if (has_more && !stream.is_stopped) return;
  // Copies end here, because the server issues no further piece; blocks must start to see the stop.
  const TimePoint end = has_more && !IsCopy(work.kernel) ? now + costs_.drain : now;
  last_notice_ = std::max(last_notice_, end + Draw(costs_.notices, costs_.notice));
  Add({.at = last_notice_,
       .kind = Event::Kind::kNotice,
       .blocks = stream.next_block,
       .id = work.id});
  stream.items.pop_front();
  stream.is_eligible = false;
  if (!stream.items.empty()) PrepareNext(number, end, now);
}

SharedGpu::Engine SharedGpu::GetEngine(const Kernel& kernel) {
  switch (kernel.kind) {
    case Kernel::Kind::kCopyToDevice:
      return kToDevice;
    case Kernel::Kind::kCopyToHost:
      return kToHost;
    default:
      return kMultiprocessors;
  }
}

bool SharedGpu::IsWaiting(const Stream& stream, Engine engine) {
  if (!stream.is_eligible || stream.is_stopped) return false;
  const Kernel& kernel = stream.items.front().work.kernel;
  return stream.next_block < kernel.blocks && GetEngine(kernel) == engine;
}

bool SharedGpu::GoesBefore(const Stream& stream, const Stream& other) {
  const Work& work = stream.items.front().work;
  const Work& others = other.items.front().work;
  if (work.priority != others.priority && !IsCopy(work.kernel))
    return work.priority > others.priority;
  return stream.turn < other.turn;
}

void SharedGpu::Dispatch(Engine engine, TimePoint now) {
  while (room_[engine] > 0) {
    Stream* best = nullptr;
    for (Stream& stream : streams_) {
      if (IsWaiting(stream, engine) && (best == nullptr || GoesBefore(stream, *best)))
        best = &stream;
    }
    if (best == nullptr) return;
    const Work& work = best->items.front().work;
    const std::uint64_t each = RoomOfBlock(work.kernel);
    const auto blocks = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(room_[engine] / each, work.kernel.blocks - best->next_block));
    if (blocks == 0) return;
    best->next_block += blocks;
    best->running += blocks;
    room_[engine] -= blocks * each;
    const bool is_claimed = work.stoppable && !IsCopy(work.kernel);
    const Duration gap = std::exchange(best->gap, Duration());
    Add({.at = now + gap + work.kernel.block_time + (is_claimed ? costs_.claim : Duration()),
         .kind = Event::Kind::kBlocksEnd,
         .stream = static_cast<std::size_t>(best - streams_.data()),
         .blocks = blocks});
  }
}

}  // namespace gpushared::simulation
