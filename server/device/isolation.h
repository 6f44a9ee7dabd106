// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_ISOLATION_H_
#define GPUSHARED_SERVER_DEVICE_ISOLATION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gpushared::device {

// How strictly a client's kernels are isolated from other clients on devices that do not isolate
// them in hardware (DeviceInfo::isolates_clients). Operators write "memory = fence".
enum class Isolation : std::uint8_t {
  kOff,    // Kernels run unchanged and can access the memory of every client.
  kFence,  // Kernels can access the memory of their client only (server/ptx/passes/fence.h).
  // Kernels additionally cannot cause errors that would end the context they share with other
  // clients (server/ptx/passes/fence.h).
  kContain,
};

inline constexpr std::array<std::string_view, 3> kIsolationNames = {"off", "fence", "contain"};
inline constexpr std::size_t kIsolations = kIsolationNames.size();
// Default for users other than the server's own.
inline constexpr Isolation kIsolationOfOtherUsers = Isolation::kFence;

constexpr std::string_view IsolationName(Isolation isolation) {
  return kIsolationNames.at(static_cast<std::size_t>(isolation));
}

constexpr std::optional<Isolation> ParseIsolation(std::string_view name) {
  for (std::size_t i = 0; i < kIsolations; ++i) {
    if (kIsolationNames.at(i) == name) return static_cast<Isolation>(i);
  }
  return std::nullopt;
}

// Passes that a module goes through before it runs.
struct ModulePasses {
  Isolation isolation = Isolation::kOff;
  // Whether kernels are made preemptible between two blocks (server/ptx/passes/claim.h).
  bool claims = false;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_ISOLATION_H_
