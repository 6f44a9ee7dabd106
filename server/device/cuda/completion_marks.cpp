// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/completion_marks.h"

#include <algorithm>
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

// Keeps the promises of BatchTimes, whatever the two clocks say.
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

// Times of the GPU's clock on the host's. The driver tells the distance of two events in
// milliseconds as a float, which is good to a microsecond for some ten seconds only: so the event
// that all others are compared with is renewed every second.
class GpuClock {
 public:
  explicit GpuClock(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {}
  GpuClock(const GpuClock&) = delete;
  GpuClock& operator=(const GpuClock&) = delete;
  ~GpuClock() {
    if (context_->is_dead() || !context_->Bind().ok()) return;
    const Driver& driver = context_->driver();
    if (stream_ != nullptr) (void)context_->Call(driver.StreamDestroy, stream_);
    for (const Event event : {base_, next_}) {
      if (event != nullptr) (void)context_->Call(driver.EventDestroy, event);
    }
  }

  Status Start() {
    const Driver& driver = context_->driver();
    Status status = context_->Try("making a stream", driver.StreamCreateWithPriority, &stream_,
                                  kStreamNonBlocking, 0);
    for (Event* const event : {&base_, &next_}) {
      if (status.ok()) status = context_->Try("making an event", driver.EventCreate, event, 0U);
    }
    // It passes at once, and when we hear of that is up to the machine. A base that was placed too
    // late would put what ran into the future, where it is cut down to nothing.
    base_time_ = DeviceClock::now();
    if (status.ok())
      status = context_->Try("starting the clock", driver.EventRecord, base_, stream_);
    if (status.ok()) status = context_->Try("starting the clock", driver.EventSynchronize, base_);
    return status;
  }

  // Of an event that has passed.
  Status TimeOf(Event event, TimePoint& time) const {
    float milliseconds = 0;
    Status status = context_->Try("reading the time of work", context_->driver().EventElapsedTime,
                                  &milliseconds, base_, event);
    time = base_time_ + nanoseconds(static_cast<std::int64_t>(double{milliseconds} * 1e6));
    return status;
  }

  // Renews the base when it is old; never waits.
  Status Refresh(TimePoint now) {
    const Driver& driver = context_->driver();
    if (!is_renewing_) {
      if (now - base_time_ < kBaseLife) return {};
      is_renewing_ = true;
      recorded_ = now;
      return context_->Try("renewing the clock", driver.EventRecord, next_, stream_);
    }
    const Code code = context_->Call(driver.EventQuery, next_);
    if (code == Code::kNotReady) return {};
    if (code != Code::kSuccess) {
      return context_->Explain("renewing the clock", driver.EventQuery.name(), code);
    }
    TimePoint time;
    if (Status status = TimeOf(next_, time); !status.ok()) return status;
    // The event passed between its recording and now. When that is well known it is the truth,
    // and puts right what the clocks drifted apart; else the GPU's own count goes on.
    const bool is_known = now - recorded_ < kSharp;
    base_time_ = is_known ? std::clamp(time, recorded_, now) : std::min(time, now);
    std::swap(base_, next_);
    is_renewing_ = false;
    return {};
  }

 private:
  static constexpr nanoseconds kBaseLife = std::chrono::seconds(1);
  static constexpr nanoseconds kSharp = std::chrono::microseconds(100);

  const std::shared_ptr<CudaContext> context_;
  Stream stream_ = nullptr;  // Always empty, so that its events pass at once.
  Event base_ = nullptr;
  Event next_ = nullptr;
  TimePoint base_time_;
  TimePoint recorded_;
  bool is_renewing_ = false;
};

class EventMarks : public CompletionMarks {
 public:
  EventMarks(std::shared_ptr<CudaContext> context, std::size_t streams)
      : context_(std::move(context)), clock_(context_), streams_(streams) {}
  EventMarks(const EventMarks&) = delete;
  EventMarks& operator=(const EventMarks&) = delete;
  ~EventMarks() override {
    if (context_->is_dead() || !context_->Bind().ok()) return;
    for (const Event event : all_) (void)context_->Call(context_->driver().EventDestroy, event);
  }

  Status Start() { return clock_.Start(); }

  Status Open(std::size_t number, Stream stream, bool is_idle) override {
    StreamState& state = streams_[number];
    if (!is_idle) return {};
    // What was to follow the last one was refused by the driver, and nothing came.
    if (state.opened != nullptr) free_.push_back(std::exchange(state.opened, nullptr));
    return Record(stream, state.opened);
  }

  Status Close(std::size_t number, Stream stream) override {
    StreamState& state = streams_[number];
    Event end = nullptr;
    if (Status status = Record(stream, end); !status.ok()) return status;
    state.batches.push_back({.start = std::exchange(state.opened, nullptr), .end = end});
    return {};
  }

  Result<std::optional<BatchTimes>> Poll(std::size_t number, Stream /*stream*/) override {
    StreamState& state = streams_[number];
    if (state.batches.empty()) return std::optional<BatchTimes>();
    const Batch batch = state.batches.front();
    const Code code = context_->Call(context_->driver().EventQuery, batch.end);
    if (code == Code::kNotReady) return std::optional<BatchTimes>();
    if (code != Code::kSuccess) {
      return context_->Explain("following work", context_->driver().EventQuery.name(), code);
    }
    const TimePoint now = DeviceClock::now();
    TimePoint ended;
    TimePoint started;  // The end of the batch ahead, when it has no event.
    Status status = clock_.TimeOf(batch.end, ended);
    if (status.ok() && batch.start != nullptr) status = clock_.TimeOf(batch.start, started);
    if (status.ok()) status = clock_.Refresh(now);
    if (!status.ok()) return status;
    state.batches.pop_front();
    free_.push_back(batch.end);
    if (batch.start != nullptr) free_.push_back(batch.start);
    return std::optional(state.times.Bounded(started, ended, now));
  }

 private:
  struct Batch {
    Event start = nullptr;
    Event end = nullptr;
  };
  struct StreamState {
    Event opened = nullptr;  // Ahead of the batch that is open.
    std::deque<Batch> batches;
    StreamTimes times;
  };

  Status Record(Stream stream, Event& event) {
    const Driver& driver = context_->driver();
    if (free_.empty()) {
      Event made = nullptr;
      Status status = context_->Try("making an event", driver.EventCreate, &made, 0U);
      if (!status.ok()) return status;
      all_.push_back(made);
      free_.push_back(made);
    }
    event = free_.back();
    free_.pop_back();
    return context_->Try("marking work", driver.EventRecord, event, stream);
  }

  const std::shared_ptr<CudaContext> context_;
  GpuClock clock_;
  std::vector<Event> all_;
  std::vector<Event> free_;
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
    Status status = context_->Try("taking pinned host memory", driver.MemHostAlloc, &memory, bytes,
                                  kHostPortable | kHostDeviceMap);
    if (!status.ok()) return status;
    memory_ = static_cast<std::byte*>(memory);
    std::fill_n(memory_, bytes, std::byte{0});
    return context_->Try("mapping pinned host memory", driver.MemHostGetDevicePointer, &device_,
                         memory, 0U);
  }

  Status Open(std::size_t number, Stream /*stream*/, bool is_idle) override {
    // The end of the batch ahead, when it is not idle.
    streams_[number].opened = is_idle ? DeviceClock::now() : TimePoint();
    return {};
  }

  Status Close(std::size_t number, Stream stream) override {
    StreamState& state = streams_[number];
    state.batches.push_back({.sequence = ++state.last_sequence, .started = state.opened});
    return context_->Try("marking work", context_->driver().StreamWriteValue64, stream,
                         device_ + number * kWordStride, state.last_sequence, kWriteValueDefault);
  }

  Result<std::optional<BatchTimes>> Poll(std::size_t number, Stream stream) override {
    StreamState& state = streams_[number];
    if (state.batches.empty()) return std::optional<BatchTimes>();
    const TimePoint now = DeviceClock::now();
    if (WordOf(number).load(std::memory_order_acquire) < state.batches.front().sequence) {
      // A dead context writes nothing: only a call finds out.
      if (now - state.last_check < kCheckInterval) return std::optional<BatchTimes>();
      state.last_check = now;
      const Driver& driver = context_->driver();
      const Code code = context_->Call(driver.StreamQuery, stream);
      if (code == Code::kSuccess || code == Code::kNotReady) return std::optional<BatchTimes>();
      return context_->Explain("following work", driver.StreamQuery.name(), code);
    }
    const TimePoint started = state.batches.front().started;
    state.batches.pop_front();
    return std::optional(state.times.Bounded(started, now, now));
  }

 private:
  // Words of different streams do not share a cache line, nor a pair of them.
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

  std::atomic_ref<std::uint64_t> WordOf(std::size_t number) const {
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
                  "completions by writes refused: this GPU or driver has no memory operations of "
                  "64 bits on streams; use events");
  }
  return Started(std::make_unique<WriteMarks>(std::move(context), streams));
}

}  // namespace gpushared::device::cuda
