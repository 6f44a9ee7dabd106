// SPDX-License-Identifier: Apache-2.0
// Lists of messages, and queries on them by receivers and tests.

#ifndef GPUSHARED_IPC_WIRE_MESSAGE_LIST_H_
#define GPUSHARED_IPC_WIRE_MESSAGE_LIST_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "ipc/wire/fields.h"
#include "ipc/wire/frame.h"

namespace gpushared::ipc {

template <typename... Messages>
struct MessageList {};

// Returns the rule for frames of this type, if the list contains the message.
template <typename... Messages>
std::optional<FrameRule> RuleIn(MessageList<Messages...>, std::uint16_t type) {
  std::optional<FrameRule> rule;
  const auto look = [&](auto message_type, const auto& layout_of) {
    if (type != static_cast<std::uint16_t>(message_type)) return;
    const MessageLayout& layout = layout_of();
    rule = {layout.bytes, layout.bytes + layout.tail_bytes_max, layout.fds};
  };
  (look(Messages::kType, GetLayout<Messages>), ...);
  return rule;
}

// Returns the name of the message; empty if the list does not contain it.
template <typename... Messages>
std::string_view NameIn(MessageList<Messages...>, std::uint16_t type) {
  std::string_view name;
  ((type == static_cast<std::uint16_t>(Messages::kType) ? void(name = Messages::kName) : void()),
   ...);
  return name;
}

// Decodes the frame as the message that has the frame's type and calls `handle` with the Result.
// Returns false if the list does not contain the type.
template <typename... Messages, typename Handle>
bool DecodeAs(MessageList<Messages...>, const Frame& frame, Handle&& handle) {
  return ((frame.type == static_cast<std::uint16_t>(Messages::kType) &&
           (handle(Decode<Messages>(frame.payload)), true)) ||
          ...);
}

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_MESSAGE_LIST_H_
