// SPDX-License-Identifier: Apache-2.0
// What a node offers to Kubernetes, by what its server says. Pure: no kubelet, no server.

#ifndef GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DEVICES_H_
#define GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DEVICES_H_

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "server/telemetry/admin/containers.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::kubernetes {

inline constexpr const char* kResourceDomain = "gpushared.io/";
// A kubelet takes no longer ones.
inline constexpr std::size_t kShareIdBytesMax = 63;
inline constexpr std::size_t kSharesMax = 1000;

// How many containers may come through an endpoint to one device at a time.
//
// Thread-compatible value.
struct ShareCounts {
  std::size_t usual = 4;
  std::map<std::string, std::size_t, std::less<>> of_endpoint;
};
// `words`: "8" is for all endpoints, "batch=16" for one.
Result<ShareCounts> ParseShareCounts(std::span<const std::string> words);

// One container's place at a device.
//
// Thread-compatible value.
struct Share {
  std::string id;      // "cpu:0/2", of a resource's shares alone.
  std::string device;  // The server's name of it.
  bool is_healthy = false;
  bool operator==(const Share&) const = default;
};

// One resource of the node: an endpoint of the server.
//
// Thread-compatible value.
struct Offer {
  std::string resource;  // "gpushared.io/batch"
  admin::ContainerWay way;
  std::vector<Share> shares;
};

// What can be offered, and why some endpoints are not.
//
// Thread-compatible value.
struct Offers {
  std::vector<Offer> offers;
  std::vector<std::string> rejections;
};

// `endpoints` and `status` are the server's answers. A share is healthy while the server takes
// clients for its device.
Result<Offers> GetOffers(const nlohmann::json& endpoints, const nlohmann::json& status,
                         const ShareCounts& counts);

// What a container gets that was given a share.
//
// Thread-compatible value.
struct Grant {
  std::map<std::string, std::string> variables;
  std::string directory, directory_inside;  // To be mounted, read-only.
  std::string cdi_device;  // The same mount and socket, as the CDI file names them.
};
// `ids` are a kubelet's. Rejects all but one share of this offer: a second one would give nothing.
Result<Grant> GetGrant(const Offer& offer, std::span<const std::string> ids);

// `size` of the `available` ids, those of `needed` first, and then those of the device that has
// most of them left. Fewer if there are no more.
std::vector<std::string> GetPreferred(const Offer& offer, std::span<const std::string> available,
                                      std::span<const std::string> needed, std::size_t size);

}  // namespace gpushared::kubernetes

#endif  // GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DEVICES_H_
