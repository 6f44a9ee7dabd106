// SPDX-License-Identifier: Apache-2.0
// Every place where bytes of a peer become values: ring memory, control messages, frames on a
// socket. Accepted values must satisfy the guarantees of the validated types. Everything else must
// be rejected. No access may leave its bounds (run under asan and ubsan).

#ifndef GPUSHARED_TESTS_FUZZ_WIRE_TARGETS_H_
#define GPUSHARED_TESTS_FUZZ_WIRE_TARGETS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "ipc/wire/channel.h"
#include "ipc/wire/control.h"

namespace gpushared::testing {

using Input = std::span<const std::byte>;

// The first byte of an input selects the target. Messages use their type number, so that a new
// message does not invalidate the inputs of the others.
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
  // Takes the input after the first byte. Returns false if it is rejected; ends the process if our
  // own code breaks a guarantee.
  bool (*accepts)(Input input) = nullptr;
};

std::span<const WireTarget> WireTargets();
// Returns null for an input without a target.
const WireTarget* GetTarget(Input input);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_FUZZ_WIRE_TARGETS_H_
