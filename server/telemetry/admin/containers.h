// SPDX-License-Identifier: Apache-2.0
// Endpoints for containers, and the file of the Container Device Interface (CDI) that describes
// them.

#ifndef GPUSHARED_SERVER_TELEMETRY_ADMIN_CONTAINERS_H_
#define GPUSHARED_SERVER_TELEMETRY_ADMIN_CONTAINERS_H_

#include <map>
#include <span>
#include <string>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/socket_path.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::admin {

// Mount point of an endpoint's directory in a container.
inline constexpr const char* kContainerDirectory = ipc::kSystemSocketDirectory;
// Variables by which programs in a container find the server and their device.
inline constexpr const char* kSocketVariable = "GPUSHARED_SOCKET";
inline constexpr const char* kDeviceVariable = "GPUSHARED_DEVICE";
// Kind of the devices in the CDI file.
inline constexpr const char* kCdiKind = "gpushared.io/endpoint";

// An open endpoint of the configuration that containers can use. A container gets the endpoint's
// directory, read-only, and nothing else. The server's own socket and leases are excluded, because
// the directory of the former gives access to everything and the latter are temporary.
//
// Thread-compatible value.
struct ContainerEndpoint {
  std::string name;
  std::string directory;             // Directory of the socket on the machine.
  std::string socket_inside;         // Path of the socket within the container.
  std::vector<std::string> devices;  // Usable devices, by name or UUID; empty: all.
  // kUnsupported: the directory holds another endpoint's socket, or the name is not a valid CDI
  // device name.
  Status fits;
};

// `answer` is the server's answer to `endpoints`.
Result<std::vector<ContainerEndpoint>> ReadContainerEndpoints(const nlohmann::json& answer);

// A directory of the machine that a container gets read-only.
//
// Thread-compatible value.
struct ContainerMount {
  std::string directory, directory_inside;
  bool has_programs = false;  // Whether it contains programs or libraries.
};
// Part of a CDI file that gives a container these variables and mounts.
nlohmann::json CdiEdits(const std::map<std::string, std::string>& variables,
                        std::span<const ContainerMount> mounts);

// Describes a device gpushared.io/endpoint=NAME for each endpoint. Fails if an endpoint is
// unsuitable or if there is none.
Result<nlohmann::json> CdiFile(std::span<const ContainerEndpoint> endpoints);

// Replaces a file atomically, because a container may start at any moment.
Status ReplaceFile(const std::string& file, const std::string& text);

}  // namespace gpushared::admin

#endif  // GPUSHARED_SERVER_TELEMETRY_ADMIN_CONTAINERS_H_
