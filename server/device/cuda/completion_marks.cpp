// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/completion_marks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace gpushared::device::cuda {
namespace {

using std::chrono::nanoseconds;
using TimePoint = DeviceClock::time_point;

// Maintains the guarantees of BatchTimes, regardless of what the two clocks report.
class StreamTimes {
 public:
  BatchTimes Bounded(TimePoint started, TimePoint ended, TimePoint now) {
    BatchTimes times;
    times.ended = std::max(std::min(ended, now), last_end_ + nanoseconds(1));
    times.started = std::clamp(started, last_end_, times.ended - nanoseconds(1));
    last_end_ = times.ended;
    return times;
  }

 private:
  TimePoint last_end_;
};

// ---- events

// The duration of a batch is the distance of two events on the GPU's clock. Its position on the
// host's clock follows from the distance to the last event that opened a batch, and from the host's
// observations: a batch started after its submission to an idle stream, and ended after it was seen
// running and before it was seen ended. A contradiction corrects the offset between the clocks, so
// that batches of different streams are ordered correctly. Because the distance is a float of
// milliseconds, its resolution after a long idle time is no better than the duration of a short
// kernel, and the clocks drift by more than that. In this case the first batch determines the
// offset.
//
// An event can only be recorded on streams of the context that was current when it was created, and
// has a distance only to events of that context. Therefore streams of a green context have separate
// events and a separate clock offset.
class EventMarks : public CompletionMarks {
 public:
  EventMarks(std::shared_ptr<CudaContext> context, std::size_t streams)
      : context_(std::move(context)), clocks_(1), streams_(streams) {
    for (StreamState& state : streams_) state.clock = &clocks_.front();
  }
  EventMarks(const EventMarks&) = delete;
  EventMarks& operator=(const EventMarks&) = delete;
  ~EventMarks() override {
    if (context_->is_dead() || !context_->Bind().ok()) return;
    const Driver& driver = context_->driver();
    if (stream_ != nullptr) (void)context_->Call(driver.StreamDestroy, stream_);
    for (const Event event : all_) (void)context_->Call(driver.EventDestroy, event);
  }

  Status Start() {
    Status status = context_->Try("making a stream", context_->driver().StreamCreateWithPriority,
                                  &stream_, kStreamNonBlocking, 0);
    return status.ok() ? StartClock(clocks_.front(), stream_) : status;
  }

  Status SetContext(std::size_t number, Stream stream, Context context) override {
    const auto found = std::ranges::find(clocks_, context, &Clock::context);
    if (found != clocks_.end()) {
      streams_[number].clock = &*found;
      return {};
    }
    Clock& clock = clocks_.emplace_back(Clock{.context = context});
    streams_[number].clock = &clock;
    return StartClock(clock, stream);
  }

  Status Open(std::size_t number, Stream stream, bool is_idle, bool is_timed) override {
    StreamState& state = streams_[number];
    state.is_idle = is_idle;
    if (is_idle) {
      // Marks remain only if the driver rejected the batch that was to follow the last one.
      state.clock->Free(state.opened);
      state.clock->Free(state.last_end);
      state.opened_at = DeviceClock::now();
    }
    // If the end of the previous batch has a time, the batch starts at that time.
    if (!is_timed || (!is_idle && state.last_is_timed)) return {};
    return Record(*state.clock, stream, Pool::kTimed, state.opened);
  }

  Status Close(std::size_t number, Stream stream, bool is_timed) override {
    StreamState& state = streams_[number];
    const bool has_start = state.opened.event != nullptr || (!state.is_idle && state.last_is_timed);
    Batch batch{.start = std::exchange(state.opened, {}),
                .is_timed = is_timed && has_start,
                .is_idle = state.is_idle,
                .opened_at = state.opened_at};
    Status status =
        Record(*state.clock, stream, batch.is_timed ? Pool::kTimed : Pool::kUntimed, batch.end);
    if (!status.ok()) return status;
    state.last_is_timed = batch.is_timed;
    state.batches.push_back(batch);
    return {};
  }

  Result<std::optional<BatchTimes>> Poll(std::size_t number, Stream /*stream*/) override {
    StreamState& state = streams_[number];
    if (state.batches.empty()) return std::optional<BatchTimes>();
    Batch& batch = state.batches.front();
    const TimePoint asked = DeviceClock::now();
    const Driver& driver = context_->driver();
    const Code code = context_->Call(driver.EventQuery, batch.end.event);
    if (code == Code::kNotReady) {
      state.seen_running = asked;
      return std::optional<BatchTimes>();
    }
    if (code != Code::kSuccess) {
      return context_->Explain("polling work", driver.EventQuery.name(), code);
    }
    Result<BatchTimes> times = batch.is_timed ? GetTimes(state, batch) : GetHostTimes(state, batch);
    if (!times.ok()) return times.status();
    state.batches.pop_front();
    return std::optional(*times);
  }

 private:
  enum class Pool : std::uint8_t { kTimed, kUntimed };
  struct Mark {
    Event event = nullptr;
    Pool pool = Pool::kTimed;
  };
  // Events of a context, and the offset of its clock from the host's.
  struct Clock {
    std::vector<Event>& GetFree(Pool pool) { return free[pool == Pool::kTimed ? 0 : 1]; }
    void Free(Mark& mark) {
      if (mark.event != nullptr) GetFree(mark.pool).push_back(std::exchange(mark.event, nullptr));
    }

    Context context = nullptr;                    // Null for the GPU's primary context.
    std::array<std::vector<Event>, 2> free = {};  // By pool.
    // Opening event of the batch that most recently ended, among those that have one. Times on the
    // GPU's clock are relative to the event of StartClock.
    Mark base = {};
    nanoseconds base_at{};
    nanoseconds ahead{};  // Offset from the GPU's clock to the host's.
  };
  struct Batch {
    Mark start;  // Unset if the batch follows another one or has no times.
    Mark end;
    bool is_timed = false;
    bool is_idle = false;  // Whether the stream was idle before the batch.
    TimePoint opened_at;   // Just before the first work was submitted to an idle stream.
  };
  struct StreamState {
    Clock* clock = nullptr;
    Mark opened;  // Mark before the open batch.
    bool is_idle = true;
    TimePoint opened_at;
    bool last_is_timed = false;  // Whether the batch that was closed last is timed.
    std::deque<Batch> batches;
    Mark last_end;  // End of the last batch, and the start of the next batch.
    nanoseconds last_end_at{};
    TimePoint seen_running;  // When the oldest batch was last seen running.
    StreamTimes times;
  };

  // Reads both clocks as simultaneously as possible while the stream is idle.
  Status StartClock(Clock& clock, Stream stream) {
    // The event passes immediately, but the machine may delay its detection, so reported times are
    // too early rather than too late.
    clock.ahead = DeviceClock::now().time_since_epoch();
    Status status = Record(clock, stream, Pool::kTimed, clock.base);
    if (!status.ok()) return status;
    return context_->Try("starting the clock", context_->driver().EventSynchronize,
                         clock.base.event);
  }

  // Returns the times of a batch that has ended. Its start becomes the base of the clock, its end
  // the last_end of the stream.
  Result<BatchTimes> GetTimes(StreamState& state, Batch& batch) {
    const TimePoint now = DeviceClock::now();
    Clock& clock = *state.clock;
    const bool has_start = batch.start.event != nullptr;
    const Event begin = has_start ? batch.start.event : state.last_end.event;
    nanoseconds length{};
    Status status = Distance(begin, batch.end.event, length);
    if (status.ok() && has_start) status = MoveBase(clock, batch.start);
    if (!status.ok()) return status;
    state.last_end_at = (has_start ? clock.base_at : state.last_end_at) + length;
    clock.Free(state.last_end);
    state.last_end = batch.end;
    TimePoint least = std::exchange(state.seen_running, {});
    if (batch.is_idle) least = std::max(least, batch.opened_at + length);
    const TimePoint ended =
        OnHost(clock, state.last_end_at, std::min(least, now), now, !batch.is_idle);
    return state.times.Bounded(ended - length, ended, now);
  }
  // Returns times on the host's clock: from the submission to an idle stream, or the end of the
  // previous batch, to the poll that detected the end.
  BatchTimes GetHostTimes(StreamState& state, Batch& batch) {
    const TimePoint now = DeviceClock::now();
    state.clock->Free(batch.start);
    state.clock->Free(batch.end);
    state.clock->Free(state.last_end);
    state.seen_running = {};
    BatchTimes times = state.times.Bounded(batch.is_idle ? batch.opened_at : TimePoint(), now, now);
    times.are_exact = false;
    return times;
  }

  Status Distance(Event from, Event to, nanoseconds& distance) {
    float milliseconds = 0;
    Status status = context_->Try("reading the time of work", context_->driver().EventElapsedTime,
                                  &milliseconds, from, to);
    distance = nanoseconds(static_cast<std::int64_t>(double{milliseconds} * 1e6));
    return status;
  }

  // Makes `next`, whose event has passed, the base of the clock, which then owns the event.
  Status MoveBase(Clock& clock, Mark& next) {
    nanoseconds distance{};
    Status status = Distance(clock.base.event, next.event, distance);
    clock.Free(clock.base);
    clock.base = next;
    clock.base_at += distance;
    return status;
  }

  // Converts the end of a batch to the host's clock. `follows`: the batch follows another one, so
  // its start is known.
  static TimePoint OnHost(Clock& clock, nanoseconds at, TimePoint least, TimePoint most,
                          bool follows) {
    TimePoint time(at + clock.ahead);
    // If the time is too late, corrects a batch with a known start as little as possible, because
    // moving its end further back would make it too short.
    if (time > most) time = follows ? most : least;
    time = std::max(time, least);
    clock.ahead = time.time_since_epoch() - at;
    return time;
  }

  // Events are reused, so contexts are switched only while the first ones are created.
  Status Make(Clock& clock, Pool pool) {
    const Driver& driver = context_->driver();
    const bool is_green = clock.context != nullptr;
    const unsigned flags = pool == Pool::kTimed ? 0U : kEventDisableTiming;
    Event made = nullptr;
    Status status;
    if (is_green) status = context_->Try("using a part", driver.CtxSetCurrent, clock.context);
    if (status.ok()) status = context_->Try("making an event", driver.EventCreate, &made, flags);
    if (made != nullptr) {
      all_.push_back(made);
      clock.GetFree(pool).push_back(made);
    }
    Status back = is_green ? context_->Bind() : Status();
    return status.ok() ? back : status;
  }
  Status Record(Clock& clock, Stream stream, Pool pool, Mark& mark) {
    std::vector<Event>& free = clock.GetFree(pool);
    if (free.empty()) {
      if (Status status = Make(clock, pool); !status.ok()) return status;
    }
    mark = {.event = free.back(), .pool = pool};
    free.pop_back();
    return context_->Try("marking work", context_->driver().EventRecord, mark.event, stream);
  }

  const std::shared_ptr<CudaContext> context_;
  Stream stream_ = nullptr;  // Always empty, so that its events pass at once.
  std::vector<Event> all_;
  std::deque<Clock> clocks_;  // The first is for the GPU's primary context.
  std::vector<StreamState> streams_;
};

// ---- writes

class WriteMarks : public CompletionMarks {
 public:
  WriteMarks(std::shared_ptr<CudaContext> context, std::size_t streams)
      : context_(std::move(context)), streams_(streams) {}
  WriteMarks(const WriteMarks&) = delete;
  WriteMarks& operator=(const WriteMarks&) = delete;
  ~WriteMarks() override {
    if (memory_ == nullptr || context_->is_dead() || !context_->Bind().ok()) return;
    (void)context_->Call(context_->driver().MemFreeHost, static_cast<void*>(memory_));
  }

  Status Start() {
    const Driver& driver = context_->driver();
    void* memory = nullptr;
    const std::size_t bytes = streams_.size() * kWordStride;
    Status status = context_->Try("allocating pinned host memory", driver.MemHostAlloc, &memory,
                                  bytes, kHostPortable | kHostDeviceMap);
    if (!status.ok()) return status;
    memory_ = static_cast<std::byte*>(memory);
    std::fill_n(memory_, bytes, std::byte{0});
    return context_->Try("mapping pinned host memory", driver.MemHostGetDevicePointer, &device_,
                         memory, 0U);
  }

  // Streams of any context can write to the memory.
  Status SetContext(std::size_t, Stream, Context) override { return {}; }

  Status Open(std::size_t number, Stream /*stream*/, bool is_idle, bool /*is_timed*/) override {
    // If the stream is not idle, the batch starts when the previous one ends.
    streams_[number].opened = is_idle ? DeviceClock::now() : TimePoint();
    return {};
  }

  Status Close(std::size_t number, Stream stream, bool /*is_timed*/) override {
    StreamState& state = streams_[number];
    state.batches.push_back({.sequence = ++state.last_sequence, .started = state.opened});
    return context_->Try("marking work", context_->driver().StreamWriteValue64, stream,
                         device_ + number * kWordStride, state.last_sequence, kWriteValueDefault);
  }

  Result<std::optional<BatchTimes>> Poll(std::size_t number, Stream stream) override {
    StreamState& state = streams_[number];
    if (state.batches.empty()) return std::optional<BatchTimes>();
    const TimePoint now = DeviceClock::now();
    if (GetWord(number).load(std::memory_order_acquire) < state.batches.front().sequence) {
      // A dead context never writes the word; only a driver call detects that the context is dead.
      if (now - state.last_check < kCheckInterval) return std::optional<BatchTimes>();
      state.last_check = now;
      const Driver& driver = context_->driver();
      const Code code = context_->Call(driver.StreamQuery, stream);
      if (code == Code::kSuccess || code == Code::kNotReady) return std::optional<BatchTimes>();
      return context_->Explain("polling work", driver.StreamQuery.name(), code);
    }
    const TimePoint started = state.batches.front().started;
    state.batches.pop_front();
    return std::optional(state.times.Bounded(started, now, now));
  }

 private:
  // Words of different streams share neither a cache line nor a pair of cache lines.
  static constexpr std::size_t kWordStride = 128;
  static constexpr nanoseconds kCheckInterval = std::chrono::microseconds(100);

  struct Batch {
    std::uint64_t sequence = 0;
    TimePoint started;
  };
  struct StreamState {
    std::uint64_t last_sequence = 0;
    TimePoint opened;
    TimePoint last_check;
    std::deque<Batch> batches;
    StreamTimes times;
  };

  std::atomic_ref<std::uint64_t> GetWord(std::size_t number) const {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(memory_ + number * kWordStride));
  }

  const std::shared_ptr<CudaContext> context_;
  std::byte* memory_ = nullptr;
  DeviceAddress device_ = 0;
  std::vector<StreamState> streams_;
};

template <typename Marks>
Result<std::unique_ptr<CompletionMarks>> Started(std::unique_ptr<Marks> marks) {
  if (Status status = marks->Start(); !status.ok()) return status;
  return std::unique_ptr<CompletionMarks>(std::move(marks));
}

}  // namespace

Result<std::unique_ptr<CompletionMarks>> CompletionMarks::Create(
    CompletionKind kind, std::shared_ptr<CudaContext> context, std::size_t streams) {
  if (kind == CompletionKind::kEvents) {
    return Started(std::make_unique<EventMarks>(std::move(context), streams));
  }
  if (!context->driver().Has(Feature::kStreamMemoryOperations) ||
      context->Attribute(DeviceAttribute::kStreamMemoryOperations64, 0) == 0) {
    return Status(StatusCode::kUnsupported,
                  "completions by writes rejected: this GPU or driver has no memory operations of "
                  "64 bits on streams; use events");
  }
  return Started(std::make_unique<WriteMarks>(std::move(context), streams));
}

}  // namespace gpushared::device::cuda
