// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_ISOLATION_H_
#define GPUSHARED_SERVER_DEVICE_ISOLATION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gpushared::device {

// How far a client's kernels are kept from everybody else, on devices that do not do it by
// themselves (DeviceInfo::isolates_clients). What an operator writes as "memory = fence".
enum class Isolation : std::uint8_t {
  kOff,    // As the client wrote them: they may reach the memory of every client.
  kFence,  // They reach their client's memory only (server/ptx/passes/fence.h).
  // And do nothing that would end the context they share with others (server/ptx/passes/fence.h).
  kContain,
};

inline constexpr std::array<std::string_view, 3> kIsolationNames = {"off", "fence", "contain"};
inline constexpr std::size_t kIsolations = kIsolationNames.size();
// The default for users other than the server's own.
inline constexpr Isolation kIsolationOfStrangers = Isolation::kFence;

constexpr std::string_view IsolationName(Isolation isolation) {
  return kIsolationNames.at(static_cast<std::size_t>(isolation));
}

constexpr std::optional<Isolation> ParseIsolation(std::string_view name) {
  for (std::size_t i = 0; i < kIsolations; ++i) {
    if (kIsolationNames.at(i) == name) return static_cast<Isolation>(i);
  }
  return std::nullopt;
}

// The passes that a module goes through before it runs.
struct ModulePasses {
  Isolation isolation = Isolation::kOff;
  bool claims =
      false;  // Kernels that can be stopped between two blocks: server/ptx/passes/claim.h.
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_ISOLATION_H_
