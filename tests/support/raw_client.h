// SPDX-License-Identifier: Apache-2.0
// A client that speaks the protocol by hand, with the broker or directly with a worker. Tests need
// it for acts that the client library never performs, such as dying between two bytes or sending
// invalid values.

#ifndef GPUSHARED_TESTS_SUPPORT_RAW_CLIENT_H_
#define GPUSHARED_TESTS_SUPPORT_RAW_CLIENT_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

#include "ipc/shared_segment.h"
#include "ipc/tag_ring.h"
#include "ipc/unique_fd.h"
#include "ipc/unix_socket.h"
#include "ipc/wire/command.h"
#include "ipc/wire/completion.h"
#include "ipc/wire/control.h"

namespace gpushared::testing {

// The position of a command in its stream.
using Sequence = std::uint64_t;

struct Blocks {
  std::uint32_t x = 1;
};

// ---- records that a server accepts, for the client to send or for tests to corrupt

ipc::LaunchRecord GetLaunch(std::uint32_t stream, std::uint32_t module, std::uint32_t kernel,
                            Blocks blocks, std::size_t parameter_bytes);
struct CopyOptions {
  std::uint32_t stream = 0;
  std::uint32_t staging_buffer = 0, offset = 0;
  std::uint64_t address = 0;
  std::uint32_t bytes = 0;
};
// `op`: kCopyToDevice or kCopyToHost.
ipc::CopyRecord GetCopy(ipc::Op op, const CopyOptions& options);
ipc::FillRecord GetFill(std::uint32_t stream, std::uint64_t address, std::uint64_t bytes,
                        std::uint32_t value);
ipc::WaitForRecord WaitForOf(std::uint32_t stream, std::uint32_t wait_stream,
                             Sequence wait_sequence);
ipc::PlainRecord GetPlain(ipc::Op op, std::uint32_t stream);
// `op`: kBeginRequest or kExpectRequest.
ipc::RequestRecord GetRequest(ipc::Op op, std::uint32_t stream, std::uint64_t time_ns);

// Returns a kNameBuffer record, or if `bytes` is 0, kForgetBuffer.
ipc::BufferRecord GetBuffer(std::uint32_t stream, std::uint64_t address, std::uint64_t bytes);

// `op`: kMakeGraph, kLaunchGraph or kDestroyGraph.
ipc::GraphRecord GetGraph(ipc::Op op, std::uint32_t stream, std::uint32_t graph);
// The node, graph and stream that a record names.
struct NodePlace {
  std::uint32_t graph = 0;
  std::uint32_t node = 0;
  std::uint32_t stream = 0;
};
// Returns the record that sets a node to a command, and the contents of its continuation granules.
// `node`: the record of the command.
template <typename Record>
ipc::GraphRecord GetNode(const NodePlace& place, Record node, std::span<const std::byte> parameters,
                         std::vector<std::byte>& content) {
  node.stream = 0;
  node.header.continuations = static_cast<std::uint16_t>(
      (parameters.size() + ipc::kContinuationDataBytes - 1) / ipc::kContinuationDataBytes);
  const auto head = std::as_bytes(std::span(&node, 1));
  content.assign(head.begin(), head.end());
  content.insert(content.end(), parameters.begin(), parameters.end());
  ipc::GraphRecord record = GetGraph(ipc::Op::kSetGraphNode, place.stream, place.graph);
  record.node = place.node;
  record.content_bytes = static_cast<std::uint32_t>(content.size());
  return record;
}

// Returns the number of the kernel with this name in a loaded module; an invalid number if there is
// no such kernel.
std::uint32_t KernelNumber(const ipc::ModuleLoaded& module, std::string_view name);
// Returns launch parameters: an address, then zeros.
std::vector<std::byte> ParametersAt(std::uint64_t address, std::size_t bytes);

// A connection to a broker or worker. Waits end after kPatience with false, an empty value or
// kTimedOut. If the server rejects a request, the Status of the rejection is returned.
// Thread-compatible.
class RawClient {
 public:
  static constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(30);

  explicit RawClient(ipc::UniqueFd socket) : socket_(std::move(socket)) {}
  // Connects to a broker.
  static Result<RawClient> Connect(const std::string& path);

  // Sends a hello and waits for the handshake to complete.
  Status Join(const ipc::Hello& hello);
  // Receives the welcome and maps the segments that came with it.
  Status AwaitWelcome();
  // Returns the next frame of any type, without sending a request.
  Result<ipc::Frame> NextFrame(std::chrono::milliseconds limit = kPatience);
  // Returns the code and message with which the server ends or rejects the session; kDisconnected
  // without text if the socket closes without a message.
  Status AwaitEnd();

  template <typename Request>
  Status Send(const Request& request, std::span<const int> fds = {}) {
    return ipc::SendMessage(socket(), ++request_, request, Soon(), fds);
  }
  template <typename Answer>
  Result<Answer> Receive(std::vector<ipc::UniqueFd>* fds = nullptr) {
    Result<ipc::Frame> frame = NextFrame();
    if (!frame.ok()) return frame.status();
    if (fds != nullptr) *fds = std::move(frame->fds);
    return ipc::DecodeReply<Answer>(*frame);
  }
  template <typename Answer, typename Request>
  Result<Answer> Ask(const Request& request, std::span<const int> fds = {},
                     std::vector<ipc::UniqueFd>* answer_fds = nullptr) {
    if (Status status = Send(request, fds); !status.ok()) return status;
    return Receive<Answer>(answer_fds);
  }
  // Requests memory for an image from the server, and returns it filled with the image.
  Result<ipc::UniqueFd> MakeImage(std::string_view image);
  Result<ipc::ModuleLoaded> LoadModule(std::uint32_t number, std::string_view image);
  Result<std::uint64_t> Resize(std::uint64_t bytes);
  // Maps the staging buffer; returns its number.
  Result<std::uint32_t> AddStagingBuffer(std::uint64_t bytes);
  std::span<std::byte> staging_buffer(std::uint32_t number) const {
    return staging_buffers_[number].bytes();
  }
  int staging_fd(std::uint32_t number) const { return staging_buffers_[number].fd(); }

  // ---- commands; each publishes one record, rings the doorbell, and returns the sequence (0: ring
  // full)
  Sequence Launch(std::uint32_t stream, std::uint32_t module, std::uint32_t kernel,
                  Blocks blocks = {}, std::span<const std::byte> parameters = {});
  Sequence CopyToDevice(std::uint32_t stream, std::uint32_t staging_buffer, std::uint32_t offset,
                        std::uint64_t address, std::uint32_t bytes);
  Sequence CopyToHost(std::uint32_t stream, std::uint32_t staging_buffer, std::uint32_t offset,
                      std::uint64_t address, std::uint32_t bytes);
  Sequence Fill(std::uint32_t stream, std::uint64_t address, std::uint64_t bytes,
                std::uint32_t value);
  Sequence WaitFor(std::uint32_t stream, std::uint32_t wait_stream, Sequence wait_sequence);
  Sequence Mark(std::uint32_t stream) { return Plain(ipc::Op::kMark, stream); }
  Sequence CreateStream(std::uint32_t stream) { return Plain(ipc::Op::kCreateStream, stream); }
  Sequence DestroyStream(std::uint32_t stream) { return Plain(ipc::Op::kDestroyStream, stream); }
  Sequence BeginRequest(std::uint32_t stream, std::uint64_t age_ns = 0) {
    return PublishAndRing(GetRequest(ipc::Op::kBeginRequest, stream, age_ns));
  }
  Sequence EndRequest(std::uint32_t stream) { return Plain(ipc::Op::kEndRequest, stream); }
  Sequence ExpectRequest(std::uint32_t stream, std::uint64_t in_ns) {
    return PublishAndRing(GetRequest(ipc::Op::kExpectRequest, stream, in_ns));
  }
  Sequence NameBuffer(std::uint64_t address, std::uint64_t bytes, std::uint32_t stream = 0) {
    return PublishAndRing(GetBuffer(stream, address, bytes));
  }
  Sequence MakeGraph(std::uint32_t graph, std::uint32_t stream = 0) {
    return PublishAndRing(GetGraph(ipc::Op::kMakeGraph, stream, graph));
  }
  Sequence LaunchGraph(std::uint32_t graph, std::uint32_t stream = 0) {
    return PublishAndRing(GetGraph(ipc::Op::kLaunchGraph, stream, graph));
  }
  Sequence DestroyGraph(std::uint32_t graph, std::uint32_t stream = 0) {
    return PublishAndRing(GetGraph(ipc::Op::kDestroyGraph, stream, graph));
  }
  template <typename Record>
  Sequence SetNode(const NodePlace& place, const Record& node,
                   std::span<const std::byte> parameters = {}) {
    std::vector<std::byte> content;
    const ipc::GraphRecord record = GetNode(place, node, parameters, content);
    return PublishAndRing(record, content);
  }
  Sequence Plain(ipc::Op op, std::uint32_t stream) { return PublishAndRing(GetPlain(op, stream)); }

  // Sets sequence and tag of the record and publishes it without ringing the doorbell. Returns 0 if
  // the ring is full.
  template <typename Record>
  Sequence Publish(Record record, std::span<const std::byte> tail = {}) {
    record.header.sequence = sequences_[record.stream] + 1;
    if (ring_->TryWrite(record, tail) != ipc::WriteResult::kWritten) return 0;
    return ++sequences_[record.stream];
  }
  void Ring();
  // Returns how many commands were published on a stream, which equals the last sequence.
  Sequence published(std::uint32_t stream) const { return sequences_[stream]; }

  // ---- results
  Sequence finished(std::uint32_t stream) const {
    return completions().timeline[stream].load(std::memory_order_acquire);
  }
  bool AwaitFinished(std::uint32_t stream, Sequence sequence,
                     std::chrono::milliseconds limit = kPatience) const;
  // Returns the next completion record; empty if none arrives in time.
  std::optional<ipc::CompletionNotice> NextCompletion();
  std::optional<ipc::CompletionNotice> TakeCompletion();  // Does not wait.

  const ipc::Welcome& welcome() const { return welcome_; }
  std::uint64_t base() const { return welcome_.space_base; }
  int socket() const { return socket_.get(); }
  int doorbell() const { return doorbell_.get(); }
  void CloseSocket() { socket_.Reset(); }
  ipc::CommandSegment& commands() const { return commands_.As<ipc::CommandSegment>(); }
  int commands_fd() const { return commands_.fd(); }
  const ipc::CompletionSegment& completions() const {
    return completions_.As<ipc::CompletionSegment>();
  }
  int completions_fd() const { return completions_.fd(); }
  // Position of the next record in the command ring.
  std::uint64_t ring_position() const { return ring_->position(); }

 private:
  static ipc::Deadline Soon() { return std::chrono::steady_clock::now() + kPatience; }
  template <typename Record>
  Sequence PublishAndRing(const Record& record, std::span<const std::byte> tail = {}) {
    const Sequence sequence = Publish(record, tail);
    Ring();
    return sequence;
  }
  // Calls `holds` until it returns true, sleeping between completions.
  template <typename Holds>
  bool Await(Holds holds, std::chrono::milliseconds limit) const;

  ipc::UniqueFd socket_, doorbell_;
  std::uint32_t request_ = 0;
  ipc::Welcome welcome_;
  ipc::SharedSegment commands_, completions_, page_;
  std::array<ipc::SharedSegment, ipc::kStagingBuffersMax> staging_buffers_;
  std::optional<ipc::TagRingWriter> ring_;
  std::optional<ipc::TagRingReader> completion_ring_;
  std::array<Sequence, ipc::kStreamsMax> sequences_ = {};
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_RAW_CLIENT_H_
