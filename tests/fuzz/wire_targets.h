// SPDX-License-Identifier: Apache-2.0
// Every place where bytes of a peer become values: ring memory, control messages, frames on a
// socket. Accepted values must keep the promises of the validated types. Everything else must be
// rejected. Nothing may read or write outside its bounds (run under asan and ubsan).

#ifndef GPUSHARED_TESTS_FUZZ_WIRE_TARGETS_H_
#define GPUSHARED_TESTS_FUZZ_WIRE_TARGETS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "ipc/wire/channel.h"
#include "ipc/wire/control.h"

namespace gpushared::testing {

using Input = std::span<const std::byte>;

// The first byte of an input says whose it is. Messages have the number of their type, so that a
// new one leaves the inputs of all others where they are.
inline constexpr std::uint8_t kRingSelector = 0;
inline constexpr std::uint8_t kFirstFramesSelector = 192;
inline constexpr std::uint8_t kClientFramesSelector = 193;
inline constexpr std::uint8_t kServerFramesSelector = 194;
constexpr std::uint8_t GetSelector(ipc::MessageType type) {
  return static_cast<std::uint8_t>(type);
}
constexpr std::uint8_t GetSelector(ipc::ChannelType type) {
  return static_cast<std::uint8_t>(128 + static_cast<unsigned>(type));
}

struct WireTarget {
  std::uint8_t selector = 0;
  const char* name = "";
  // Takes what is behind the first byte. False when it is rejected; ends the process when our own
  // code breaks a promise.
  bool (*accepts)(Input input) = nullptr;
};

std::span<const WireTarget> WireTargets();
// Null for an input of none.
const WireTarget* GetTarget(Input input);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_FUZZ_WIRE_TARGETS_H_
