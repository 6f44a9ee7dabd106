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

// Environment variables that concern a client. An option set by the program takes precedence over a
// variable of gpushared, which takes precedence over one of CUDA or MPS. Options that none of them
// sets remain unset, so the server decides. An invalid value is rejected with the name of its
// variable (kInvalidArgument). docs/library.md lists the variables; ipc/socket_path.h handles
// sockets.
//
// Thread-compatible.
class Environment {
 public:
  // Returns the value of a variable; null if it is not set.
  using Variables = std::function<const char*(const char* name)>;
  explicit Environment(Variables variables = Real()) : variables_(std::move(variables)) {}

  // Fills in the options that do not depend on the server's devices.
  Status Apply(ClientOptions& options) const;
  // Returns whether ApplyDevices has anything to fill in.
  bool NamesDevices(const ClientOptions& options) const;
  // Fills in the device, and a memory limit that a variable specifies per device.
  Status ApplyDevices(std::span<const KnownDevice> devices, ClientOptions& options) const;

  // Returns the indexes of the server's devices that are visible to this program, in the order of
  // the ordinals that the program uses. kNotFound if GPUSHARED_DEVICE names none of the server's
  // devices.
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
