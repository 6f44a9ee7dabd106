// SPDX-License-Identifier: Apache-2.0
// Resources that a node offers to Kubernetes, derived from its server's answers. Pure functions
// without access to the kubelet or the server.

#ifndef GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DEVICES_H_
#define GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DEVICES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "server/telemetry/admin/containers.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::kubernetes {

inline constexpr const char* kResourceDomain = "gpushared.io/";
// The kubelet's limit for the id of a share.
inline constexpr std::size_t kShareIdBytesMax = 63;
inline constexpr std::size_t kSharesMax = 1000;

// Maximum number of containers that may use one device through an endpoint at the same time.
//
// Thread-compatible value.
struct ShareCounts {
  std::size_t usual = 4;
  std::map<std::string, std::size_t, std::less<>> of_endpoint;
};
// Parses `words`, of which "8" applies to all endpoints and "batch=16" to one.
Result<ShareCounts> ParseShareCounts(std::span<const std::string> words);

// A device of the server. Thread-compatible value.
struct DeviceFacts {
  std::string name, uuid;  // The cpu device has no UUID.
  std::string product;
  std::uint64_t memory_bytes = 0;
  bool takes_clients = false;  // Whether the server admits clients to it.
};
// `status` is the server's answer to AdminVerb::kStatus.
Result<std::vector<DeviceFacts>> GetDevices(const nlohmann::json& status);

// Capacity for one container on a device.
//
// Thread-compatible value.
struct Share {
  std::string id;      // "cpu:0/2", unique within a resource.
  std::string device;  // The server's name of the device.
  bool is_healthy = false;
  bool operator==(const Share&) const = default;
};

// One resource of the node: an endpoint of the server with its shares.
//
// Thread-compatible value.
struct Offer {
  std::string resource;  // "gpushared.io/batch"
  admin::ContainerEndpoint endpoint;
  std::vector<Share> shares;
};

// Resources that can be offered, and why the other endpoints cannot.
//
// Thread-compatible value.
struct Offers {
  std::vector<Offer> offers;
  std::vector<std::string> rejections;
};

// `endpoints` and `status` are the server's answers. A share is healthy while the server admits
// clients to its device.
Result<Offers> GetOffers(const nlohmann::json& endpoints, const nlohmann::json& status,
                         const ShareCounts& counts);

// Settings for a container that is allocated a share.
//
// Thread-compatible value.
struct Grant {
  std::map<std::string, std::string> variables;
  // Directory to be mounted read-only, on the host and inside the container.
  std::string directory, directory_inside;
  std::string cdi_device;  // Name under which the CDI file describes the same mount and socket.
};
// `ids` come from the kubelet. Accepts exactly one share of this resource, because a second share
// would have no effect.
Result<Grant> GetGrant(const Offer& offer, std::span<const std::string> ids);

// Selects `size` of the `available` ids: first those in `needed`, then repeatedly one of the device
// with the most remaining ids. Returns fewer if `available` has fewer.
std::vector<std::string> GetPreferred(const Offer& offer, std::span<const std::string> available,
                                      std::span<const std::string> needed, std::size_t size);

}  // namespace gpushared::kubernetes

#endif  // GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DEVICES_H_
