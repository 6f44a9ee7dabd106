// SPDX-License-Identifier: Apache-2.0
// Claims of pods, derived from the objects of the Kubernetes API: what the driver publishes for
// them, what an allocated one leases, and its CDI file. Pure functions.

#ifndef GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DRA_CLAIM_H_
#define GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DRA_CLAIM_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

#include "server/tools/cluster/kubernetes/devices.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::dra {

inline constexpr const char* kDriverName = "gpushared.io";
// Kind of the CDI devices that the driver describes. Each claim has one file with one device.
inline constexpr const char* kCdiKind = "gpushared.io/claim";
// Names of the driver's leases begin with this.
inline constexpr const char* kLeasePrefix = "claim-";

// A claim as the kubelet names it. Thread-compatible value.
struct ClaimName {
  std::string space, name, uid;
};
std::string InWords(const ClaimName& claim);  // "claim 'jobs/training'"
// kInvalidArgument unless `uid` can be part of a file name.
Status CheckUid(const ClaimName& claim);
// Name of the claim's endpoint, unique unless the first 26 digits of two UIDs are equal.
std::string GetLeaseName(const std::string& uid);

// A device that was allocated to a request of the claim. Thread-compatible value.
struct AllocatedDevice {
  std::string request, pool, device;
  std::string uuid;
};

// An allocated claim. Thread-compatible value.
struct Claim {
  ClaimName name;
  std::vector<AllocatedDevice> devices;
  std::string terms;  // Terms of the lease, as TOML.
  // Environment variables of the claim's programs, without the one that names the socket.
  std::map<std::string, std::string> variables;
};

// `object` is the ResourceClaim. The error names the claim, what it asked for and what is allowed.
Result<Claim> ReadClaim(const ClaimName& name, const nlohmann::json& object,
                        const std::string& node, std::span<const kubernetes::DeviceFacts> devices);

// Part of the driver's settings that containers see. Thread-compatible value.
struct ContainerSettings {
  // Directory on the host that contains the drop-in libcuda. If empty, no drop-in is mounted.
  std::string drop_in;
  // Kind of the CDI devices that give a container a GPU with its driver, such as nvidia.com/gpu. If
  // set, programs run in gate mode.
  std::string gpu_cdi_kind;
};
// Describes the device gpushared.io/claim=UID. The file also contains the claim, so that a
// restarted driver knows what it has prepared.
nlohmann::json GetCdiFile(const Claim& claim, const std::string& socket,
                          const ContainerSettings& settings);
Result<Claim> ReadCdiFile(const nlohmann::json& file);
// Names of the CDI devices for one of the claim's devices.
std::vector<std::string> GetCdiNames(const Claim& claim, const AllocatedDevice& device,
                                     const ContainerSettings& settings);

// `spec` of the node's ResourceSlice.
nlohmann::json GetSliceSpec(const std::string& node,
                            std::span<const kubernetes::DeviceFacts> devices,
                            const std::string& server_version, std::int64_t generation);

// Returns the member at a path such as "/status/allocation", or null. Never throws, whatever
// `object` is.
const nlohmann::json& Find(const nlohmann::json& object, const std::string& path);
// Parses a whole number of Kubernetes, such as "250", "1k" or "8Gi".
Result<std::uint64_t> ParseQuantity(std::string_view text);

}  // namespace gpushared::dra

#endif  // GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DRA_CLAIM_H_
