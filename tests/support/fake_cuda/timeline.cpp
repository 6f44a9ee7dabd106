// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/timeline.h"

#include <algorithm>
#include <utility>

namespace gpushared::testing::fake_cuda {
namespace {

using device::cuda::Code;
using device::cuda::DeviceAttribute;
using std::chrono::nanoseconds;

constexpr std::uint64_t kWarp = 32;
constexpr std::uint64_t kBlocksPerMultiprocessor = 32;

bool IsHostCopy(Kind kind) { return kind == Kind::kCopyIn || kind == Kind::kCopyOut; }
bool IsKernel(Kind kind) {
  return kind == Kind::kKernel || kind == Kind::kFill || kind == Kind::kCopyInside;
}

nanoseconds Transfer(std::uint64_t bytes, std::uint64_t bytes_per_us) {
  return nanoseconds(bytes * 1000 / bytes_per_us);
}

}  // namespace

Timeline::Timeline(World& world, Gpu& gpu)
    : world_(world), gpu_(gpu), time_(world.Now()), next_block_at_(time_) {
  const auto& attributes = world.settings.attributes;
  const auto value = [&](DeviceAttribute which) {
    return static_cast<std::uint64_t>(attributes.at(static_cast<int>(which)));
  };
  threads_ = value(DeviceAttribute::kMultiprocessors) *
             value(DeviceAttribute::kThreadsPerMultiprocessorMax);
  free_threads_ = threads_;
}

const Costs& Timeline::costs() const { return *world_.settings.costs; }

Timeline::TimePoint Timeline::Arrival(TimePoint now) const {
  return now + nanoseconds(costs().launch_delay);
}

nanoseconds Timeline::Gap(Kind last, const Work& next) const {
  nanoseconds gap{};
  if (last == Kind::kNothing) return gap;
  if (IsHostCopy(last) != IsHostCopy(next.kind)) gap += nanoseconds(costs().engine_switch);
  if (IsKernel(next.kind)) {
    gap += nanoseconds(next.follows_in_graph ? costs().graph_gap : costs().kernel_gap);
  }
  return gap;
}

nanoseconds Timeline::Length(const Work& work) const {
  switch (work.kind) {
    case Kind::kCopyIn:
    case Kind::kCopyOut:
      return nanoseconds(costs().copy_latency) + Transfer(work.bytes, costs().host_bytes_per_us);
    case Kind::kCopyInside:
    case Kind::kFill:
      return nanoseconds(costs().fill_kernel) + Transfer(work.bytes, costs().device_bytes_per_us);
    case Kind::kEvent:
      return nanoseconds(costs().untimed_event);
    case Kind::kTimedEvent:
      return nanoseconds(costs().timed_event);
    case Kind::kWrite:
      return nanoseconds(costs().write_value);
    case Kind::kHostFunction:
      return nanoseconds(costs().host_function);
    case Kind::kNothing:
    case Kind::kWait:
    case Kind::kKernel:
      break;
  }
  return {};
}

Timeline::Head Timeline::NextHead() const {
  Head best;
  if (world_.settings.held) return best;
  for (const auto& stream : gpu_.streams) {
    if (stream->running || stream->queue.empty()) continue;
    const Work& work = stream->queue.front();
    if (work.ready && !work.ready()) continue;
    TimePoint at = std::max(time_, work.arrives);
    at = std::max(at, stream->free_at + Gap(stream->last, work));
    if (IsHostCopy(work.kind)) {
      at = std::max(at, engine_free_at_[work.kind == Kind::kCopyIn ? 0 : 1]);
    }
    const auto rank = [](const FakeStream& each) {
      return std::pair(each.priority, each.queue.front().order);
    };
    if (best.stream == nullptr || at < best.at ||
        (at == best.at && rank(*stream) < rank(*best.stream))) {
      best = {at, stream};
    }
  }
  return best;
}

Timeline::TimePoint Timeline::next_event() const {
  const TimePoint end = ends_.empty() ? kNever : ends_.top().at;
  return std::min(NextHead().at, end);
}

void Timeline::AdvanceTo(TimePoint now) {
  while (!world_.sticky) {
    const Head head = NextHead();
    const TimePoint end = ends_.empty() ? kNever : ends_.top().at;
    if (std::min(head.at, end) > now) break;
    MoveTo(std::min(head.at, end));
    world_.work_time = time_;
    if (end <= head.at) {
      EndNext();
    } else {
      Start(head.stream);
    }
    DispatchBlocks();
  }
  world_.work_time.reset();
  MoveTo(now);
}

void Timeline::MoveTo(TimePoint time) {
  if (time <= time_) return;
  if (free_threads_ < threads_) busy_ += time - time_;
  time_ = time;
}

void Timeline::Start(const std::shared_ptr<FakeStream>& stream) {
  stream->running = std::move(stream->queue.front());
  stream->queue.pop_front();
  Work& work = *stream->running;
  if (work.kind != Kind::kKernel) {
    const TimePoint at = time_ + Length(work);
    if (IsHostCopy(work.kind)) engine_free_at_[work.kind == Kind::kCopyIn ? 0 : 1] = at;
    ends_.push({.at = at, .order = ++order_, .stream = stream, .resident = nullptr, .blocks = 0});
    return;
  }
  if (const Code code = work.blocks->Begin(); code != Code::kSuccess) {
    world_.sticky = code;
    return;
  }
  const auto most = static_cast<std::uint64_t>(world_.settings.attributes.at(
      static_cast<int>(DeviceAttribute::kThreadsPerMultiprocessorMax)));
  const std::uint64_t threads = (work.blocks->threads() + kWarp - 1) / kWarp * kWarp;
  auto kernel = std::make_unique<Resident>(Resident{
      .stream = stream, .room = std::clamp(threads, most / kBlocksPerMultiprocessor, most)});
  const auto rank = [](const std::unique_ptr<Resident>& each) {
    return std::pair(each->stream->priority, each->stream->running->order);
  };
  residents_.insert(std::ranges::upper_bound(residents_, rank(kernel), {}, rank),
                    std::move(kernel));
}

void Timeline::DispatchBlocks() {
  for (const auto& kernel : residents_) {
    while (kernel->next_block < kernel->stream->running->blocks->count() && !world_.sticky) {
      if (!DispatchFrom(*kernel)) return;
    }
  }
}

bool Timeline::DispatchFrom(Resident& kernel) {
  if (free_threads_ < kernel.room) return false;
  next_block_at_ = std::max(next_block_at_ + nanoseconds(costs().block_start), time_);
  const BlockRun::Ran ran = kernel.stream->running->blocks->Run(kernel.next_block);
  if (ran.code != Code::kSuccess) {
    world_.sticky = ran.code;
    return false;
  }
  kernel.next_block += ran.blocks;
  kernel.running += ran.blocks;
  // Takes space once for all blocks of the run, because blocks that ran while another block waited
  // share that block's space.
  free_threads_ -= kernel.room;
  ends_.push(
      {.at = next_block_at_ + nanoseconds(static_cast<std::int64_t>(
                                  ran.instructions * static_cast<double>(costs().instruction))),
       .order = ++order_,
       .stream = kernel.stream,
       .resident = &kernel,
       .blocks = ran.blocks});
  return true;
}

void Timeline::EndNext() {
  const End end = ends_.top();
  ends_.pop();
  if (end.resident == nullptr) return Finish(*end.stream);
  Resident& kernel = *end.resident;
  kernel.running -= end.blocks;
  free_threads_ += kernel.room;
  if (kernel.running > 0 || kernel.next_block < end.stream->running->blocks->count()) return;
  std::erase_if(residents_, [&](const auto& each) { return each.get() == &kernel; });
  Finish(*end.stream);
}

void Timeline::Finish(FakeStream& stream) {
  Work& work = *stream.running;
  if (work.run) {
    if (const Code code = work.run(); code != Code::kSuccess && !world_.sticky) {
      world_.sticky = code;
    }
  }
  if (work.ended && !world_.sticky) work.ended();
  stream.free_at = time_;
  stream.last = work.kind;
  stream.running.reset();
  if (stream.destroyed && world_.Idle(stream)) {
    std::erase_if(gpu_.streams, [&](const auto& one) { return one.get() == &stream; });
  }
  world_.changed.notify_all();
}

}  // namespace gpushared::testing::fake_cuda
