// SPDX-License-Identifier: Apache-2.0
// A client of a worker that speaks the protocol by hand over a socket it is given: several
// streams, no broker, no client library.

#ifndef GPUSHARED_TESTS_SUPPORT_RAW_CLIENT_H_
#define GPUSHARED_TESTS_SUPPORT_RAW_CLIENT_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

#include "ipc/shared_segment.h"
#include "ipc/tag_ring.h"
#include "ipc/unique_fd.h"
#include "ipc/unix_socket.h"
#include "ipc/wire/completion.h"
#include "ipc/wire/control.h"

namespace gpushared::testing {

// Where a launch or a mark stands in its stream.
using Sequence = std::uint64_t;

struct Blocks {
  std::uint32_t x = 1;
};

// Thread-compatible. All waits end after 30 s, with false, an empty value or kTimedOut.
class RawClient {
 public:
  explicit RawClient(ipc::UniqueFd socket) : socket_(std::move(socket)) {}

  // Receives the welcome and maps what came with it.
  Status AwaitWelcome();
  // The next frame of any type, without asking for anything.
  Result<ipc::Frame> NextFrame();
  // The code and sentence with which the server ends the session or refuses it; kDisconnected
  // with no text when the socket closes without a word.
  Status AwaitEnd();

  template <typename Answer, typename Request>
  Result<Answer> Ask(const Request& request, std::span<const int> fds = {},
                     std::vector<ipc::UniqueFd>* answer_fds = nullptr) {
    if (Status status = ipc::SendMessage(socket_.get(), ++request_, request, Soon(), fds);
        !status.ok()) {
      return status;
    }
    Result<ipc::Frame> frame = NextFrame();
    if (!frame.ok()) return frame.status();
    if (answer_fds != nullptr) *answer_fds = std::move(frame->fds);
    return ipc::DecodeReply<Answer>(*frame);
  }
  Result<ipc::ModuleLoaded> LoadModule(std::uint32_t number, std::string_view image);
  Result<std::uint64_t> Resize(std::uint64_t bytes);
  // Maps the arena; its number on success.
  Result<std::uint32_t> AddArena(std::uint64_t bytes);
  std::span<std::byte> arena(std::uint32_t number) const { return arenas_[number].bytes(); }

  // ---- commands; each publishes one record, rings, and returns its sequence (0: ring full)
  Sequence Launch(std::uint32_t stream, std::uint32_t module, std::uint32_t kernel,
                  Blocks blocks = {}, std::span<const std::byte> parameters = {});
  Sequence CopyToDevice(std::uint32_t stream, std::uint32_t arena, std::uint32_t offset,
                        std::uint64_t address, std::uint32_t bytes);
  Sequence CopyToHost(std::uint32_t stream, std::uint32_t arena, std::uint32_t offset,
                      std::uint64_t address, std::uint32_t bytes);
  Sequence Fill(std::uint32_t stream, std::uint64_t address, std::uint64_t bytes,
                std::uint32_t value);
  Sequence WaitFor(std::uint32_t stream, std::uint32_t wait_stream, Sequence wait_sequence);
  Sequence Mark(std::uint32_t stream) { return Plain(ipc::Op::kMark, stream); }
  Sequence CreateStream(std::uint32_t stream) { return Plain(ipc::Op::kCreateStream, stream); }
  Sequence DestroyStream(std::uint32_t stream) { return Plain(ipc::Op::kDestroyStream, stream); }
  Sequence Plain(ipc::Op op, std::uint32_t stream);

  // Publishes without ringing; sequence and tag are set here. Zero when the ring is full.
  template <typename Record>
  Sequence Publish(Record record, std::span<const std::byte> tail = {}) {
    record.header.sequence = sequences_[record.stream] + 1;
    if (ring_->TryWrite(record, tail) != ipc::WriteResult::kWritten) return 0;
    return ++sequences_[record.stream];
  }
  void Ring();

  // ---- what came of them
  Sequence finished(std::uint32_t stream) const {
    return completions_.As<ipc::CompletionSegment>().timeline[stream].load(
        std::memory_order_acquire);
  }
  bool AwaitFinished(std::uint32_t stream, Sequence sequence);
  // The next completion record; empty when none comes in time.
  std::optional<ipc::CompletionNotice> NextCompletion();
  std::optional<ipc::CompletionNotice> TakeCompletion();  // Without waiting.

  const ipc::Welcome& welcome() const { return welcome_; }
  std::uint64_t base() const { return welcome_.space_base; }
  int socket() const { return socket_.get(); }
  void CloseSocket() { socket_.Reset(); }
  ipc::CommandSegment& commands() const { return commands_.As<ipc::CommandSegment>(); }

 private:
  static ipc::Deadline Soon() {
    return std::chrono::steady_clock::now() + std::chrono::seconds(30);
  }
  Sequence PublishAndRing(Sequence sequence) {
    Ring();
    return sequence;
  }

  ipc::UniqueFd socket_, doorbell_;
  std::uint32_t request_ = 0;
  ipc::Welcome welcome_;
  ipc::SharedSegment commands_, completions_, page_;
  std::array<ipc::SharedSegment, ipc::kArenasMax> arenas_;
  std::optional<ipc::TagRingWriter> ring_;
  std::optional<ipc::TagRingReader> completion_ring_;
  std::array<Sequence, ipc::kStreamsMax> sequences_ = {};
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_RAW_CLIENT_H_
