// SPDX-License-Identifier: Apache-2.0
// The frame around every control message, on client sockets and on the channel between broker
// and worker.

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
inline constexpr std::uint32_t kFrameFdsMax = 4;

struct FrameHeader {
  std::uint32_t magic = kFrameMagic;
  std::uint16_t type = 0;  // MessageType or ChannelType.
  std::uint16_t reserved = 0;
  std::uint32_t request = 0;  // Chosen by the asker, repeated in the answer; 0 for unsolicited.
  std::uint32_t payload_bytes = 0;
};
static_assert(sizeof(FrameHeader) == 16 && std::has_unique_object_representations_v<FrameHeader>);

// A received frame. `type` is known to the rules it was read with, payload and fds are within
// that type's bounds; the payload itself is not yet validated.
struct Frame {
  std::uint16_t type = 0;
  std::uint32_t request = 0;
  std::vector<std::byte> payload;
  std::vector<UniqueFd> fds;
};

// The contents that a receiver allows for one message type.
struct FrameRule {
  std::uint32_t payload_bytes_min = 0;
  std::uint32_t payload_bytes_max = 0;
  std::uint32_t fds = 0;  // Exactly.
};

// Empty for types the receiver rejects.
using FrameRules = std::optional<FrameRule> (*)(std::uint16_t type);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_FRAME_H_
