// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_ENVIRONMENT_H_
#define GPUSHARED_CLIENT_LIB_ENVIRONMENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpushared/client.h"
#include "gpushared/result.h"

#include "client_lib/visible_devices.h"

namespace gpushared::client {

// The environment of this program, as far as it concerns a client. An option that the program set
// wins over a variable of ours, and that over one of CUDA or MPS. What nobody says stays unsaid:
// the server decides. A value that makes no sense is rejected with the variable's name
// (kInvalidArgument). The variables are in README.md; sockets are ipc/socket_path.h.
//
// Thread-compatible.
class Environment {
 public:
  // Null when the variable is not set.
  using Variables = std::function<const char*(const char* name)>;
  explicit Environment(Variables variables = Real()) : variables_(std::move(variables)) {}

  // Fills in what needs no list of the server's devices.
  Status Apply(ClientOptions& options) const;
  // Whether the next call has anything to fill in.
  bool NamesDevices(const ClientOptions& options) const;
  // Fills in the device, and the memory that a variable gives by device.
  Status ApplyDevices(std::span<const KnownDevice> devices, ClientOptions& options) const;

  // Which of the server's devices are shown to this program, by place, in its order. kNotFound when
  // GPUSHARED_DEVICE names none of them.
  Result<std::vector<std::size_t>> Shown(std::span<const KnownDevice> devices) const;

 private:
  static Variables Real();

  std::string_view Text(const char* variable) const;  // Empty when unset.
  Status ApplyName(const char* variable, std::string& name) const;
  Status ApplyClass(ClientOptions& options) const;
  Status ApplyWeight(ClientOptions& options) const;
  Status ApplyMaxShare(ClientOptions& options) const;
  Status ApplyLatencyTarget(ClientOptions& options) const;
  Status ApplyMemory(ClientOptions& options) const;
  Status ApplyInterrupt(ClientOptions& options) const;
  Result<std::optional<std::uint64_t>> PinnedLimit(std::span<const KnownDevice> devices,
                                                   const std::string& device) const;

  Variables variables_;
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_ENVIRONMENT_H_
