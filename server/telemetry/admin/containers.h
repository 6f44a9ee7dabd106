// SPDX-License-Identifier: Apache-2.0
// How containers come to endpoints, and the file of the Container Device Interface that says so.

#ifndef GPUSHARED_SERVER_TELEMETRY_ADMIN_CONTAINERS_H_
#define GPUSHARED_SERVER_TELEMETRY_ADMIN_CONTAINERS_H_

#include <span>
#include <string>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/socket_path.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::admin {

// Where a container has the directory of its endpoint.
inline constexpr const char* kContainerDirectory = ipc::kSystemSocketDirectory;
// The kind of the devices in the file.
inline constexpr const char* kCdiKind = "gpushared.io/endpoint";

// An open endpoint of the configuration. A container gets its directory, read-only, and nothing
// else. The server's own socket and leases are none: whoever had the directory of the former would
// have all, and the latter end.
//
// Thread-compatible value.
struct ContainerWay {
  std::string endpoint;
  std::string directory;             // Holds its socket, on the machine.
  std::string socket_inside;         // Its socket, as the container sees it.
  std::vector<std::string> devices;  // These alone, by name or UUID; empty: all.
  // kUnsupported: the directory holds another endpoint's socket, or no device may be called so.
  Status fits;
};

// `answer` is the server's to `endpoints`.
Result<std::vector<ContainerWay>> ContainerWays(const nlohmann::json& answer);

// A device gpushared.io/endpoint=NAME for each way. Rejects ways that do not fit, and none at all.
Result<nlohmann::json> CdiFile(std::span<const ContainerWay> ways);

// Writes a file as a whole or not at all: a container starts at any moment.
Status ReplaceFile(const std::string& file, const std::string& text);

}  // namespace gpushared::admin

#endif  // GPUSHARED_SERVER_TELEMETRY_ADMIN_CONTAINERS_H_
