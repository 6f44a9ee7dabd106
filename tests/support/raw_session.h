// SPDX-License-Identifier: Apache-2.0
// A session spoken by hand, for tests that must do what the client library never would:
// die between two bytes, or lie.

#ifndef GPUSHARED_TESTS_SUPPORT_RAW_SESSION_H_
#define GPUSHARED_TESTS_SUPPORT_RAW_SESSION_H_

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

#include "ipc/doorbell.h"
#include "ipc/shared_segment.h"
#include "ipc/tag_ring.h"
#include "ipc/unix_socket.h"
#include "ipc/wire/control.h"

namespace gpushared::testing {

// Thread-compatible. Methods that return Status or Result fail with what the server said.
class RawSession {
 public:
  // Called at every place of the protocol, with its name from kProtocolSteps.
  using StepHook = std::function<void(std::string_view step)>;
  explicit RawSession(StepHook at = [](std::string_view) {}) : at_(std::move(at)) {}

  Status Connect(const std::string& path);
  Status Handshake(const ipc::Hello& hello);
  // As `module`; the kernels are then in kernels().
  Status LoadModule(std::uint32_t module, std::span<const std::byte> image);
  Status ResizeMemory(std::uint64_t bytes);
  Status AddArena(std::uint64_t bytes);
  // The next frame, with its type unchecked against any request.
  Result<ipc::Frame> ReceiveFrame(std::chrono::milliseconds limit);
  template <typename T>
  Status Send(const T& message, std::span<const int> fds = {}) {
    return ipc::SendMessage(socket(), ++request_, message, Soon(), fds);
  }
  template <typename T>
  Result<T> Receive(std::vector<ipc::UniqueFd>* fds = nullptr) {
    Result<ipc::Frame> frame = ReceiveFrame(std::chrono::seconds(30));
    if (!frame) return frame.status();
    if (fds != nullptr) *fds = std::move(frame->fds);
    return ipc::DecodeReply<T>(*frame);
  }

  // Records that the server accepts after all of the above, on stream 0.
  ipc::LaunchRecord Launch(std::string_view kernel, std::uint16_t parameter_bytes,
                           std::vector<std::byte>& tail) const;
  ipc::CopyRecord Copy(ipc::Op op, std::uint32_t bytes) const;
  ipc::CopyOnDeviceRecord CopyOnDevice(std::uint64_t bytes) const;
  ipc::FillRecord Fill(std::uint64_t bytes) const;
  ipc::WaitForRecord WaitFor(std::uint64_t sequence) const;
  ipc::PlainRecord Plain(ipc::Op op, std::uint32_t stream) const;

  // Writes the record with the next sequence of stream 0, without waking the worker.
  // False when the ring is full.
  template <typename Record>
  bool Publish(Record record, std::span<const std::byte> tail = {}) {
    record.header.sequence = sequence_ + 1;
    if (ring_->TryWrite(record, tail) != ipc::WriteResult::kWritten) return false;
    ++sequence_;
    return true;
  }
  void Ring() { ipc::ClientDoorbell(page_.As<ipc::WorkerPage>(), doorbell_.get()).Ring(); }
  // True when stream 0 has passed `sequence` within the limit.
  bool WaitUntil(std::uint64_t sequence, std::chrono::milliseconds limit) const;

  int socket() const { return socket_.get(); }
  int doorbell() const { return doorbell_.get(); }
  std::uint64_t sequence() const { return sequence_; }
  std::uint32_t arena() const { return arena_id_; }
  const ipc::Welcome& welcome() const { return welcome_; }
  ipc::CommandSegment& commands() const { return commands_.As<ipc::CommandSegment>(); }
  const ipc::CompletionSegment& completions() const {
    return completions_.As<ipc::CompletionSegment>();
  }
  int completions_fd() const { return completions_.fd(); }
  int commands_fd() const { return commands_.fd(); }
  int arena_fd() const { return arena_.fd(); }
  ipc::TagRingWriter& ring() { return *ring_; }

 private:
  static ipc::Deadline Soon() {
    return std::chrono::steady_clock::now() + std::chrono::seconds(30);
  }

  const StepHook at_;
  ipc::UniqueFd socket_, doorbell_;
  std::uint32_t request_ = 0, arena_id_ = 0, module_ = 0;
  std::uint64_t sequence_ = 0;
  ipc::Welcome welcome_;
  std::vector<ipc::KernelDescription> kernels_;
  ipc::SharedSegment commands_, completions_, page_, arena_;
  std::optional<ipc::TagRingWriter> ring_;
};

std::vector<std::byte> ReadFile(const std::string& path);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_RAW_SESSION_H_
