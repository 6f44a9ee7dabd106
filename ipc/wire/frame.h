// SPDX-License-Identifier: Apache-2.0
// Frame around every control message, on client sockets and on the channel between broker and
// worker.

#ifndef GPUSHARED_IPC_WIRE_FRAME_H_
#define GPUSHARED_IPC_WIRE_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "ipc/unique_fd.h"

namespace gpushared::ipc {

inline constexpr std::uint32_t kFrameMagic = 0x31534747;    // "GGS1": client sockets.
inline constexpr std::uint32_t kChannelMagic = 0x31434747;  // "GGC1": broker and worker.
inline constexpr std::uint32_t kFrameFdsMax = 6;

struct FrameHeader {
  std::uint32_t magic = kFrameMagic;
  std::uint16_t type = 0;  // MessageType or ChannelType.
  std::uint16_t reserved = 0;
  // Chosen by the requester and repeated in the answer; 0 if unsolicited.
  std::uint32_t request = 0;
  std::uint32_t payload_bytes = 0;
};
static_assert(sizeof(FrameHeader) == 16 && std::has_unique_object_representations_v<FrameHeader>);

// Received frame that satisfies the rules of its reader: `type` is allowed, and the size of the
// payload and the number of descriptors are those that the rule of that type allows. The payload
// itself has not been validated.
struct Frame {
  std::uint16_t type = 0;
  std::uint32_t request = 0;
  std::vector<std::byte> payload;
  std::vector<UniqueFd> fds;
};

// Contents that a receiver allows for one message type.
struct FrameRule {
  std::uint32_t payload_bytes_min = 0;
  std::uint32_t payload_bytes_max = 0;
  std::uint32_t fds = 0;  // Exact number of descriptors.
};

// Rules of a receiver. Returns no value for types that the receiver rejects.
using FrameRules = std::optional<FrameRule> (*)(std::uint16_t type);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_FRAME_H_
