// SPDX-License-Identifier: Apache-2.0
#include "client_lib/data_plane.h"

#include "client_lib/interrupt_watch.h"
#include "ipc/wire/validate.h"

namespace gpushared::client {

Result<std::unique_ptr<DataPlane>> DataPlane::Make(std::vector<ipc::UniqueFd> fds,
                                                   std::chrono::nanoseconds spin,
                                                   Connection& connection) {
  using ipc::SharedSegment;
  // Frames with another number of descriptors were rejected when they were received.
  Result<SharedSegment> commands =
      SharedSegment::Map(std::move(fds[0]), {.bytes = ipc::kCommandSegmentBytes,
                                             .access = SharedSegment::Access::kReadWrite,
                                             .populate = true,
                                             .what = "command segment"});
  if (!commands.ok()) return commands.status();
  Result<SharedSegment> completions =
      SharedSegment::Map(std::move(fds[1]), {.bytes = ipc::kCompletionSegmentBytes,
                                             .access = SharedSegment::Access::kReadOnly,
                                             .populate = true,
                                             .what = "completion segment"});
  if (!completions.ok()) return completions.status();
  Result<SharedSegment> page =
      SharedSegment::Map(std::move(fds[2]), {.bytes = ipc::kWorkerPageBytes,
                                             .access = SharedSegment::Access::kReadOnly,
                                             .what = "worker page"});
  if (!page.ok()) return page.status();
  // The mappings remain valid without the descriptors.
  for (SharedSegment* segment : {&*commands, &*completions, &*page}) segment->CloseFd();
  // Not make_unique, because the constructor is private.
  return std::unique_ptr<DataPlane>(new DataPlane({.commands = std::move(*commands),
                                                   .completions = std::move(*completions),
                                                   .page = std::move(*page),
                                                   .eventfd = std::move(fds[3])},
                                                  spin, connection));
}

DataPlane::DataPlane(Segments segments, std::chrono::nanoseconds spin, Connection& connection)
    : connection_(connection),
      spin_(spin),
      segments_(std::move(segments)),
      commands_(segments_.commands.As<ipc::CommandSegment>()),
      completions_(segments_.completions.As<ipc::CompletionSegment>()),
      progress_(completions_.timeline),
      doorbell_(segments_.page.As<ipc::WorkerPage>(), segments_.eventfd.get()),
      waiter_(completions_.event, commands_.waiting),
      writer_(commands_.granules, completions_.granules_taken),
      reader_(completions_.granules, commands_.completions_taken) {}

// Waits for `done` or for the end of the session.
template <typename Done>
Status DataPlane::WaitUntil(Done done, std::chrono::nanoseconds spin) {
  const auto done_or_ended = [&] {
    if (open_marks_.load(std::memory_order_relaxed) > kOpenMarksRelaxed) {
      if (completion_.TryLock()) {
        const MutexLock lock(completion_, std::adopt_lock);
        TakeLocked();
      }
    }
    return done() || connection_.ended();
  };
  const InterruptWatch interrupts(connection_.ends_on_interrupt());
  while (waiter_.Wait(done_or_ended, spin, kSlice) == ipc::WaitOutcome::kSliceOver) {
    spin = std::chrono::nanoseconds(0);
    connection_.CheckAlive();
    if (interrupts.HasCome()) EndAfterInterrupt();
  }
  // Work that finished before the session ended is reported as done.
  return done() ? Status::Ok() : connection_.end_status();
}

Status DataPlane::Await(const Fence& fence) {
  Status status = WaitUntil([&] { return progress_.HasEnded(fence); }, spin_);
  TakeCompletions();
  return status;
}

Status DataPlane::Await(StreamPoint point) {
  Status status = WaitUntil([&] { return progress_.HasEnded(point); }, spin_);
  // Processes completions first: the worker writes an error record before it moves the timeline
  // past the failed command.
  TakeCompletions();
  return status;
}

Status DataPlane::WaitForSpace(std::size_t tail_bytes) {
  if (connection_.ended()) return connection_.end_status();
  // clang cannot prove that the caller holds the lock for the duration of WaitUntil.
  ipc::TagRingWriter* const writer = &writer_;
  return WaitUntil([&] { return writer->HasRoom(tail_bytes); }, spin_);
}

// Ends the session, upon which the server ends the kernels of the session.
void DataPlane::EndAfterInterrupt() {
  connection_.End(
      Status(StatusCode::kDisconnected,
             "session ended: SIGINT arrived while a call of this program waited; "
             "the program requested this with ends_on_interrupt or GPUSHARED_INTERRUPT"));
  WakeWaiters();
}

Status DataPlane::EndAfterBadCredit() {
  connection_.End(Status(StatusCode::kProtocolViolation,
                         "session ended: the server's position in the command ring is impossible"));
  return connection_.end_status();
}

void DataPlane::AddMark(std::pair<std::uint32_t, std::uint64_t> command,
                        const std::shared_ptr<Mark>& mark) {
  if (open_marks_.load(std::memory_order_relaxed) >= kOpenMarksMax) {
    // Returns early if the session ends. The command is then submitted without effect, and the next
    // wait reports the end.
    static_cast<void>(WaitUntil(
        [&] { return open_marks_.load(std::memory_order_relaxed) < kOpenMarksMax; }, spin_));
  }
  const MutexLock lock(completion_);
  TakeLocked();
  marks_.emplace(command, mark);
  open_marks_.store(static_cast<std::uint32_t>(marks_.size()), std::memory_order_relaxed);
}

void DataPlane::Register(std::shared_ptr<StreamRecord> stream) {
  const MutexLock lock(completion_);
  TakeLocked();
  const std::uint32_t number = stream->number();
  streams_[number] = std::move(stream);
}

void DataPlane::TakeCompletions() {
  const MutexLock lock(completion_);
  TakeLocked();
}

void DataPlane::TakeLocked() {
  bool took_any = false;
  for (;;) {
    const ipc::ReadResult result = reader_.TryRead(copy_);
    if (result == ipc::ReadResult::kEmpty) break;
    ipc::CompletionNotice notice;
    ipc::Violation violation;
    if (result == ipc::ReadResult::kRecord) violation = ipc::ValidateCompletion(copy_, notice);
    if (result == ipc::ReadResult::kPeerBroken || !violation.ok()) {
      connection_.End(Status(StatusCode::kProtocolViolation,
                             "session ended: the server wrote an invalid completion"));
      return;
    }
    took_any = true;
    Note(notice);
  }
  if (!took_any) return;
  open_marks_.store(static_cast<std::uint32_t>(marks_.size()), std::memory_order_relaxed);
  // Wakes the worker: it may have stopped taking commands because the completion ring was full.
  doorbell_.Ring();
}

void DataPlane::Note(const ipc::CompletionNotice& notice) {
  const auto [stream, sequence] = notice.id;
  if (notice.kind == ipc::CompletionKind::kError) {
    const std::shared_ptr<StreamRecord>& record = streams_[stream];
    if (record != nullptr && sequence > record->created_at()) {
      record->Fail(notice.code, notice.fault, sequence);
      // Relaxed: no other data depends on the value. The first fault is kept.
      FaultKind none = FaultKind::kNone;
      first_fault_.compare_exchange_strong(none, notice.fault, std::memory_order_relaxed);
    }
    return;
  }
  const auto entry = marks_.find({stream, sequence});
  if (entry == marks_.end()) return;
  Mark& mark = *entry->second;
  mark.code = notice.code;
  mark.ended_ns = notice.ended_ns;
  mark.done.store(true, std::memory_order_release);
  marks_.erase(entry);
}

void DataPlane::WakeWaiters() {
  ipc::FutexWake(&completions_.event, std::numeric_limits<std::int32_t>::max());
}

}  // namespace gpushared::client
