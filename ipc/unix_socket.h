// SPDX-License-Identifier: Apache-2.0
// Unix sockets with framing, descriptor passing and peer credentials.
//
// The client library blocks with a deadline (SendFrame, ReceiveFrame); broker and worker never
// block (FrameReader, Outbox). Received descriptors are always close-on-exec and are closed if the
// frame is rejected. The server accepts no descriptors from clients.

#ifndef GPUSHARED_IPC_UNIX_SOCKET_H_
#define GPUSHARED_IPC_UNIX_SOCKET_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/unique_fd.h"
#include "ipc/wire/channel.h"
#include "ipc/wire/control.h"
#include "ipc/wire/frame.h"

namespace gpushared::ipc {

using Deadline = std::chrono::steady_clock::time_point;

// Returns the identity of the peer from SO_PEERCRED, which the kernel recorded at connect.
Result<PeerIdentity> GetPeer(int socket);

// Returns a pidfd of the process at the other end, readable once that process has died. Uses
// SO_PEERPIDFD (Linux 6.5) if available, otherwise pidfd_open of the recorded pid. Must be called
// right after accept, because the pid could be reused later.
Result<UniqueFd> OpenPeerPidfd(int socket);

// Connects to a server. kUnavailable if no server answers, kPermissionDenied if the socket file
// denies access, kTimedOut if the server does not accept before the deadline. The messages name the
// path.
Result<UniqueFd> ConnectUnix(const std::string& path, Deadline deadline);

// ---- blocking, for clients

// Sends one whole frame. `fds` are borrowed. kDisconnected if the peer has closed the connection;
// kTimedOut after the deadline.
Status SendFrame(int socket, std::uint16_t type, std::uint32_t request,
                 std::span<const std::byte> payload, std::span<const int> fds, Deadline deadline);

template <typename T>
Status SendMessage(int socket, std::uint32_t request, const T& message, Deadline deadline,
                   std::span<const int> fds = {}) {
  const Result<std::vector<std::byte>> payload = Encode(message);
  if (!payload.ok()) return payload.status();
  return SendFrame(socket, static_cast<std::uint16_t>(T::kType), request, *payload, fds, deadline);
}

// Receives one whole frame. kDisconnected at EOF; kTimedOut; kProtocolViolation.
Result<Frame> ReceiveFrame(int socket, FrameRules rules, Deadline deadline);

// ---- non-blocking, for broker and worker

// How a reader treats descriptors.
enum class Descriptors : std::uint8_t {
  kTaken,  // Accepts exactly as many as the rule of the frame requires.
  // For sockets of clients: a frame with descriptors is rejected, and the descriptors are left in
  // the socket, because dropping the last reference to a file can block for as long as the file's
  // release takes. The socket must then be closed by UnboundedCalls.
  kRejected,
};

// Assembles frames from a non-blocking stream socket. Never reads beyond the frame it is
// assembling, so that the socket can be handed to another process between frames.
//
// Confined to the thread that watches the socket.
class FrameReader {
 public:
  explicit FrameReader(FrameRules rules, Descriptors descriptors = Descriptors::kTaken)
      : rules_(rules), descriptors_(descriptors) {}

  enum class Progress { kFrame, kWouldBlock, kClosed };
  // Reads until a frame is complete (then in `frame`), the socket is empty, or EOF between two
  // frames. EOF inside a frame is kDisconnected. After an error the reader is unusable and the
  // socket must be closed.
  Result<Progress> Read(int socket, Frame& frame);
  // Returns whether no part of a frame has been read.
  bool is_between_frames() const { return have_ == 0 && !header_done_; }

 private:
  Status CheckHeader();
  Status TakeFds(std::vector<UniqueFd> fds);

  FrameRules rules_;
  Descriptors descriptors_;
  FrameHeader header_;
  std::size_t have_ = 0;  // Bytes read so far, of the header first and then of the payload.
  bool header_done_ = false;
  FrameRule rule_;
  Frame frame_;
};

// Discards the bytes in a non-blocking socket up to the first descriptor. Returns whether there was
// no descriptor.
bool DropBytes(int socket);

// Frames to be sent on a non-blocking socket, in order, with their descriptors.
//
// Confined to the thread that watches the socket.
class Outbox {
 public:
  // Limit of queued bytes. A peer that lets more accumulate is not reading, so its session must
  // end.
  static constexpr std::size_t kBytesMax = 32u << 20;

  // kSeqpacket sends each frame as one packet, for the channel of the broker.
  enum class Kind { kStream, kSeqpacket };
  explicit Outbox(Kind kind = Kind::kStream) : kind_(kind) {}

  // Queues a frame. kLimitExceeded if the peer does not read.
  Status Add(std::uint16_t type, std::uint32_t request, std::span<const std::byte> payload,
             std::vector<UniqueFd> fds = {});
  template <typename T>
  Status Add(std::uint32_t request, const T& message, std::vector<UniqueFd> fds = {}) {
    const Result<std::vector<std::byte>> payload = Encode(message);
    if (!payload.ok()) return payload.status();
    return Add(static_cast<std::uint16_t>(T::kType), request, *payload, std::move(fds));
  }

  // Sends as much as the socket accepts. Returns true if nothing is left, and false if the caller
  // must call Flush again when the socket is writable. kDisconnected if the peer has closed the
  // connection.
  Result<bool> Flush(int socket);

  bool empty() const { return frames_.empty(); }

 private:
  struct Pending {
    std::vector<std::byte> bytes;
    std::size_t sent = 0;
    std::vector<UniqueFd> fds;  // The descriptors are sent with the first byte of the frame.
  };
  Kind kind_;
  std::deque<Pending> frames_;
  std::size_t bytes_ = 0;
};

// ---- channel between broker and worker

// A connected SOCK_SEQPACKET pair, both ends non-blocking and close-on-exec.
Result<std::pair<UniqueFd, UniqueFd>> MakeChannelPair();
// Enlarges the buffer to hold several of the largest messages, as far as the system allows.
void SizeChannelBuffer(int channel);

// Receives one message; no value if it would block. kDisconnected if the other end is closed. The
// sender uses an Outbox of Kind::kSeqpacket.
Result<std::optional<Frame>> ReceiveChannelMessage(int channel, FrameRules rules);

// Duplicates the descriptor, close-on-exec.
Result<UniqueFd> DuplicateFd(int fd);
Status SetNonBlocking(int fd, bool non_blocking);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_UNIX_SOCKET_H_
