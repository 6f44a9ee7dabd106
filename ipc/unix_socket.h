// SPDX-License-Identifier: Apache-2.0
// Unix sockets with framing, descriptors and proof of who is at the other end.
//
// Two manners of use: the client library blocks, with a deadline (SendFrame, ReceiveFrame);
// broker and worker never block (FrameReader, Outbox). Received descriptors are always
// close-on-exec and never outlive a rejected frame. Nobody takes descriptors of a client.

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

// Who connected, from SO_PEERCRED: as the kernel recorded it at connect, not as the peer says.
Result<PeerIdentity> GetPeer(int socket);

// A pidfd of the process at the other end: readable when it has died. By SO_PEERPIDFD where
// the kernel has it (6.5), else pidfd_open of the recorded pid, which is why it must be called
// right after accept.
Result<UniqueFd> OpenPeerPidfd(int socket);

// Connects a blocking-with-deadline client socket. kUnavailable, naming the path, when no
// server answers.
Result<UniqueFd> ConnectUnix(const std::string& path, Deadline deadline);

// ---- blocking, for clients

// Sends one whole frame. `fds` are borrowed. kDisconnected when the peer is gone, kTimedOut.
Status SendFrame(int socket, std::uint16_t type, std::uint32_t request,
                 std::span<const std::byte> payload, std::span<const int> fds, Deadline deadline);

template <typename T>
Status SendMessage(int socket, std::uint32_t request, const T& message, Deadline deadline,
                   std::span<const int> fds = {}) {
  const Result<std::vector<std::byte>> payload = Encode(message);
  if (!payload.ok()) return payload.status();
  return SendFrame(socket, static_cast<std::uint16_t>(T::kType), request, *payload, fds, deadline);
}

// Receives one whole frame. kDisconnected at EOF, kTimedOut, kProtocolViolation.
Result<Frame> ReceiveFrame(int socket, FrameRules rules, Deadline deadline);

// ---- non-blocking, for broker and worker

// A reader's way with descriptors.
enum class Descriptors : std::uint8_t {
  kTaken,  // The reader takes as many as the frame's rule says.
  // For sockets of clients: a frame with any is rejected, and they stay unreceived, since whoever
  // drops the last reference to a file waits for whatever its end takes. The socket must then be
  // closed by UnboundedCalls.
  kRejected,
};

// Assembles frames from a non-blocking stream socket. Never takes a byte beyond the frame it
// is assembling, so that the socket can be handed to another process between frames.
//
// Confined to the thread that watches the socket.
class FrameReader {
 public:
  explicit FrameReader(FrameRules rules, Descriptors descriptors = Descriptors::kTaken)
      : rules_(rules), descriptors_(descriptors) {}

  enum class Progress { kFrame, kWouldBlock, kClosed };
  // Reads on until a frame is whole (then in `frame`), the socket has no more, or EOF between
  // frames. EOF inside a frame is kDisconnected. After an error the reader is finished: close
  // the socket.
  Result<Progress> Read(int socket, Frame& frame);

 private:
  Status CheckHeader();
  Status TakeFds(std::vector<UniqueFd> fds);

  FrameRules rules_;
  Descriptors descriptors_;
  FrameHeader header_;
  std::size_t have_ = 0;  // Bytes of header, then of payload, that are here.
  bool header_done_ = false;
  FrameRule rule_;
  Frame frame_;
};

// Takes all bytes out of a non-blocking socket, up to the first descriptor. False: there is one.
bool DropBytes(int socket);

// Frames waiting to be sent on a non-blocking socket, in order, with their descriptors.
//
// Confined to the thread that watches the socket.
class Outbox {
 public:
  // A peer that lets more than this pile up is not reading: end its session.
  static constexpr std::size_t kBytesMax = 32u << 20;

  // `seqpacket`: one frame is one packet (the broker's channel).
  enum class Kind { kStream, kSeqpacket };
  explicit Outbox(Kind kind = Kind::kStream) : kind_(kind) {}

  // kLimitExceeded when the peer does not read.
  Status Add(std::uint16_t type, std::uint32_t request, std::span<const std::byte> payload,
             std::vector<UniqueFd> fds = {});
  template <typename T>
  Status Add(std::uint32_t request, const T& message, std::vector<UniqueFd> fds = {}) {
    const Result<std::vector<std::byte>> payload = Encode(message);
    if (!payload.ok()) return payload.status();
    return Add(static_cast<std::uint16_t>(T::kType), request, *payload, std::move(fds));
  }

  // Sends what the socket takes. True: nothing is left; false: call again when writable.
  // kDisconnected when the peer is gone.
  Result<bool> Flush(int socket);

  bool empty() const { return frames_.empty(); }

 private:
  struct Pending {
    std::vector<std::byte> bytes;
    std::size_t sent = 0;
    std::vector<UniqueFd> fds;  // Go with the first byte.
  };
  Kind kind_;
  std::deque<Pending> frames_;
  std::size_t bytes_ = 0;
};

// ---- the channel between broker and worker

// A connected SOCK_SEQPACKET pair, both ends non-blocking and close-on-exec.
Result<std::pair<UniqueFd, UniqueFd>> MakeChannelPair();
// Room for several of the largest messages, as far as the machine allows it.
void SizeChannelBuffer(int channel);

// One message, if one is there. Empty: would block. kDisconnected when the other end is gone.
// Send with an Outbox of Kind::kSeqpacket.
Result<std::optional<Frame>> ReceiveChannelMessage(int channel, FrameRules rules);

// Duplicate, close-on-exec.
Result<UniqueFd> DuplicateFd(int fd);
Status SetNonBlocking(int fd, bool non_blocking);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_UNIX_SOCKET_H_
