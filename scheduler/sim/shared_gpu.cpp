// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/shared_gpu.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpushared::simulation {
namespace {

// A smaller part of the multiprocessors is a rounding error of a sum.
constexpr double kPartMin = 1e-6;

bool Contends(const Kernel& kernel) {
  return kernel.kind == Kernel::Kind::kCompute || kernel.kind == Kernel::Kind::kMemory;
}

}  // namespace

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
  // The next front becomes eligible at the same moment, before later work is considered.
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
  std::optional<TimePoint> next;
  if (!events_.empty()) next = events_.top().at;
  if (!waves_.empty()) next = scheduler::Earlier(next, waves_[FirstToEnd()].end);
  return next;
}

void SharedGpu::Advance(TimePoint now, std::vector<Finished>& finished) {
  for (;;) {
    const bool has_event = !events_.empty() && events_.top().at <= now;
    if (!waves_.empty()) {
      const std::size_t place = FirstToEnd();
      const Wave& wave = waves_[place];
      const bool is_first = !has_event || wave.end < events_.top().at ||
                            (wave.end == events_.top().at && wave.order < events_.top().order);
      if (wave.end <= now && is_first) {
        EndWave(place);
        continue;
      }
    }
    if (!has_event) return;
    const Event event = events_.top();
    events_.pop();
    OnEvent(event, finished);
  }
}

std::size_t SharedGpu::FirstToEnd() const {
  const auto first =
      std::min_element(waves_.begin(), waves_.end(), [](const Wave& left, const Wave& right) {
        return left.end != right.end ? left.end < right.end : left.order < right.order;
      });
  return static_cast<std::size_t>(first - waves_.begin());
}

void SharedGpu::EndWave(std::size_t place) {
  const Wave wave = waves_[place];
  waves_.erase(waves_.begin() + static_cast<std::ptrdiff_t>(place));
  Stream& stream = streams_[wave.stream];
  const Kernel kernel = stream.items.front().work.kernel;
  const Engine engine = GetEngine(kernel);
  room_[engine] += wave.blocks * RoomOfBlock(kernel);
  stream.running -= wave.blocks;
  EndFrontIfDone(wave.stream, wave.end);
  Dispatch(engine, wave.end);
}

double SharedGpu::PartInUse(const Stream& stream) const {
  if (stream.running == 0) return 0;
  const Kernel& kernel = stream.items.front().work.kernel;
  if (!Contends(kernel)) return 0;
  return static_cast<double>(stream.running * RoomOfBlock(kernel)) / whole_gpu_;
}

void SharedGpu::ReviewSpeeds(TimePoint now) {
  double total = 0;
  for (const Stream& stream : streams_) total += PartInUse(stream);
  for (Wave& wave : waves_) {
    const Stream& stream = streams_[wave.stream];
    if (!Contends(stream.items.front().work.kernel)) continue;
    const double others = total - PartInUse(stream);
    const double slowdown = others < kPartMin ? 1 : 1 + costs_.contention * others * others;
    if (slowdown == wave.slowdown) continue;
    wave.left_ns -= static_cast<double>((now - wave.since).count()) / wave.slowdown;
    wave.since = now;
    wave.slowdown = slowdown;
    wave.end = now + std::max(Duration(std::llround(wave.left_ns * slowdown)), Duration());
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
  const Engine engine = GetEngine(stream.items.front().work.kernel);
  MakeEligible(stream);
  EndFrontIfDone(event.stream, event.at);
  Dispatch(engine, event.at);
}

void SharedGpu::EndFrontIfDone(std::size_t number, TimePoint now) {
  Stream& stream = streams_[number];
  if (!stream.is_eligible || stream.running > 0) return;
  const Work& work = stream.items.front().work;
  const bool has_more = stream.next_block < work.kernel.blocks;
  if (has_more && !stream.is_stopped) return;
  // A stopped copy ends here, because the server issues no further piece. The remaining blocks of a
  // kernel must start before they can detect the stop.
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
    if (best == nullptr) break;
    const Work& work = best->items.front().work;
    const std::uint64_t each = RoomOfBlock(work.kernel);
    const auto blocks = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(room_[engine] / each, work.kernel.blocks - best->next_block));
    if (blocks == 0) break;
    best->next_block += blocks;
    best->running += blocks;
    room_[engine] -= blocks * each;
    const bool is_claimed = work.stoppable && !IsCopy(work.kernel);
    const Duration gap = std::exchange(best->gap, Duration());
    const Duration time = gap + work.kernel.block_time + (is_claimed ? costs_.claim : Duration());
    waves_.push_back({.stream = static_cast<std::size_t>(best - streams_.data()),
                      .blocks = blocks,
                      .order = orders_++,
                      .since = now,
                      .left_ns = static_cast<double>(time.count()),
                      .end = now + time});
  }
  if (engine == kMultiprocessors && costs_.contention > 0) ReviewSpeeds(now);
}

}  // namespace gpushared::simulation
