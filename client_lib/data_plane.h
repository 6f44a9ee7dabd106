// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DATA_PLANE_H_
#define GPUSHARED_CLIENT_LIB_DATA_PLANE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/result.h"
#include "gpushared/status.h"

#include "client_lib/connection.h"
#include "client_lib/progress.h"
#include "ipc/doorbell.h"
#include "ipc/shared_segment.h"
#include "ipc/tag_ring.h"
#include "ipc/unique_fd.h"
#include "ipc/wire/command.h"
#include "ipc/wire/completion.h"
#include "ipc/wire/layout.h"

namespace gpushared::client {

class GraphRecorder;

// Client-side state of one stream. Exists until the stream is destroyed and no event refers to the
// stream. When a stream number is reused, the new stream gets a new StreamRecord.
//
// Thread-safe.
class StreamRecord {
 public:
  // The stream's commands are those of `number` with a sequence above `created_at`.
  StreamRecord(std::uint32_t number, std::uint64_t created_at)
      : number_(number), created_at_(created_at) {}

  std::uint32_t number() const { return number_; }
  std::uint64_t created_at() const { return created_at_; }

  // Acquire: pairs with the release in Fail, so that the code and the sequence of the error are
  // visible.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Returns whether the command at `sequence` failed or was skipped.
  bool FailedAt(std::uint64_t sequence) const { return failed() && sequence >= error_sequence_; }
  // Records the first error; later ones are ignored. Called by one thread at a time.
  void Fail(StatusCode code, FaultKind fault, std::uint64_t sequence) {
    if (failed()) return;
    error_code_ = code;
    fault_ = fault;
    error_sequence_ = sequence;
    failed_.store(true, std::memory_order_release);
  }
  // The three functions below require failed().
  StatusCode error_code() const { return error_code_; }
  FaultKind fault() const { return fault_; }
  std::uint64_t error_sequence() const { return error_sequence_; }

  // Recorder to which the stream's commands go instead of the ring; null if the stream records no
  // graph. Set before any other thread can access the stream.
  const std::shared_ptr<GraphRecorder>& recorder() const { return recorder_; }
  void set_recorder(std::shared_ptr<GraphRecorder> recorder) { recorder_ = std::move(recorder); }

  std::optional<Status> error_text() const {
    const MutexLock lock(text_mutex_);
    return error_text_;
  }
  void set_error_text(const Status& text) {
    const MutexLock lock(text_mutex_);
    if (!error_text_) error_text_ = text;
  }

 private:
  const std::uint32_t number_;
  const std::uint64_t created_at_;
  std::shared_ptr<GraphRecorder> recorder_;
  std::atomic<bool> failed_{false};
  StatusCode error_code_ = StatusCode::kOk;
  FaultKind fault_ = FaultKind::kNone;
  std::uint64_t error_sequence_ = 0;
  mutable Mutex text_mutex_;
  // The server's message for the error.
  std::optional<Status> error_text_ GPUSHARED_GUARDED_BY(text_mutex_);
};

// Answer to a kMark command. The other fields are constant once `done` is set.
struct Mark {
  std::atomic<bool> done{false};
  StatusCode code = StatusCode::kOk;
  std::uint64_t ended_ns = 0;  // Time at which the command ended, on the device's clock.
};

// Rings, timelines and waiting of one session.
//
// Thread-safe. Two locks, acquired in this order: submission (held briefly, except while the ring
// is full), then completions (held briefly).
class DataPlane {
 public:
  // `fds` are those of the welcome frame. `connection` must outlive this object.
  static Result<std::unique_ptr<DataPlane>> Make(std::vector<ipc::UniqueFd> fds,
                                                 std::chrono::nanoseconds spin,
                                                 Connection& connection);

  const Progress& progress() const { return progress_; }

  // Puts the next command of `stream` into the ring, wakes the worker, and returns the sequence of
  // the command. Sets the stream and the sequence of `record`. Blocks while the ring is full. Fails
  // only if the session has ended. If `mark` is not null, the command's completion fills it in.
  template <typename Record>
  Result<std::uint64_t> Submit(const StreamRecord& stream, Record record,
                               std::span<const std::byte> tail = {},
                               const std::shared_ptr<Mark>& mark = nullptr) {
    const std::uint32_t number = stream.number();
    std::uint64_t sequence = 0;
    {
      const MutexLock lock(submission_);
      sequence = progress_.submitted(number) + 1;
      record.header.sequence = sequence;
      record.stream = number;
      // Added before the command is written, because the worker may answer at once.
      if (mark != nullptr) AddMark({number, sequence}, mark);
      ipc::WriteResult result;
      while ((result = writer_.TryWrite(record, tail)) != ipc::WriteResult::kWritten) [[unlikely]] {
          Status status =
              result == ipc::WriteResult::kFull ? WaitForSpace(tail.size()) : EndAfterBadCredit();
          if (!status.ok()) return status;
        }
      if constexpr (std::is_same_v<Record, ipc::BufferRecord>) {
        progress_.RecordNotice(number, sequence);
      } else {
        progress_.RecordSubmitted(number, sequence);
      }
    }
    doorbell_.Ring();
    return sequence;
  }

  // Blocks until the commands have ended or the session has. Ok even if the commands failed.
  Status Await(const Fence& fence);
  Status Await(StreamPoint point);

  // Processes the contents of the completion ring.
  void TakeCompletions();
  // Returns the number of bytes that kernels have printed. Includes everything printed by the
  // commands whose end this thread has observed.
  std::uint64_t printed() const {
    // Relaxed: acquiring a timeline word makes the stores before it visible.
    return completions_.printed.load(std::memory_order_relaxed);
  }

  // Words of the CompletionSegment. Relaxed, because no other data depends on them.
  std::uint64_t guaranteed_bytes() const {
    return completions_.guaranteed.load(std::memory_order_relaxed);
  }
  std::uint64_t resident_bytes() const {
    return completions_.resident.load(std::memory_order_relaxed);
  }
  std::uint64_t wanted_bytes() const { return completions_.wanted.load(std::memory_order_relaxed); }

  // The gate of a gated session, and what its client has submitted.
  const ipc::GateState& gate() const { return completions_.gate; }
  ipc::GateUse& gate_use() { return commands_.gate; }
  // Waits until `done()` is true, `limit` has passed or the session has ended. Then wakes all other
  // waiting threads, and returns done().
  template <typename Done>
  bool AwaitGate(Done done, std::chrono::nanoseconds limit) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + limit;
    const auto done_or_ended = [&] { return done() || connection_.ended(); };
    std::chrono::nanoseconds spin = std::min(spin_, limit);
    for (std::chrono::nanoseconds left = limit; left.count() > 0; left = end - Clock::now()) {
      if (waiter_.Wait(done_or_ended, spin, std::min<std::chrono::nanoseconds>(left, kGateSlice)) ==
          ipc::WaitOutcome::kDone) {
        break;
      }
      spin = std::chrono::nanoseconds(0);
      connection_.CheckAlive();
    }
    WakeWaiters();
    return done();
  }

  // Returns the kind of the first kernel fault that a completion record reported; kNone if there
  // was none.
  FaultKind first_fault() const { return first_fault_.load(std::memory_order_relaxed); }

  // Processes all pending completions, then directs later ones for this stream number to `stream`.
  // Called only after the previous stream of that number has ended.
  void Register(std::shared_ptr<StreamRecord> stream);

  // Wakes all waiting threads, so that they check again what they wait for and whether the session
  // has ended.
  void WakeWaiters();

 private:
  struct Segments {
    ipc::SharedSegment commands, completions, page;
    ipc::UniqueFd eventfd;
  };
  // How long a waiting thread sleeps before it polls the socket.
  static constexpr auto kSlice = std::chrono::milliseconds(50);
  // How long a thread that waits at a gate sleeps before it polls the socket. Shorter than kSlice,
  // because a gated program can continue without the server.
  static constexpr auto kGateSlice = std::chrono::milliseconds(20);
  // Above this number of open marks, waiting threads process completions while they wait, so that
  // the completion ring does not fill up.
  static constexpr std::uint32_t kOpenMarksRelaxed = 128;
  // Limit of open marks; a further mark first waits for earlier ones.
  static constexpr std::uint32_t kOpenMarksMax = 512;

  DataPlane(Segments segments, std::chrono::nanoseconds spin, Connection& connection);

  Status WaitForSpace(std::size_t tail_bytes) GPUSHARED_REQUIRES(submission_);
  void EndAfterInterrupt();
  Status EndAfterBadCredit();
  void AddMark(std::pair<std::uint32_t, std::uint64_t> command, const std::shared_ptr<Mark>& mark);
  void TakeLocked() GPUSHARED_REQUIRES(completion_);
  void Note(const ipc::CompletionNotice& notice) GPUSHARED_REQUIRES(completion_);
  template <typename Done>
  Status WaitUntil(Done done, std::chrono::nanoseconds spin);

  Connection& connection_;
  const std::chrono::nanoseconds spin_;
  Segments segments_;
  ipc::CommandSegment& commands_;
  const ipc::CompletionSegment& completions_;
  Progress progress_;
  ipc::ClientDoorbell doorbell_;
  ipc::CompletionWaiter waiter_;

  Mutex submission_;  // Serializes submissions, and with them the assignment of sequences.
  ipc::TagRingWriter writer_ GPUSHARED_GUARDED_BY(submission_);

  Mutex completion_;
  ipc::TagRingReader reader_ GPUSHARED_GUARDED_BY(completion_);
  ipc::RecordCopy copy_ GPUSHARED_GUARDED_BY(completion_);
  std::array<std::shared_ptr<StreamRecord>, ipc::kStreamsMax> streams_
      GPUSHARED_GUARDED_BY(completion_);
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::shared_ptr<Mark>> marks_
      GPUSHARED_GUARDED_BY(completion_);
  std::atomic<std::uint32_t> open_marks_{0};  // Size of marks_, readable without the lock.
  std::atomic<FaultKind> first_fault_{FaultKind::kNone};
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_DATA_PLANE_H_
