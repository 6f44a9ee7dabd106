// SPDX-License-Identifier: Apache-2.0
#include "server/tools/cluster/kubernetes/devices.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "server/telemetry/admin/json_fields.h"

#include <nlohmann/json.hpp>

namespace gpushared::kubernetes {
namespace {

using nlohmann::json;

Status InvalidReply() {
  return {StatusCode::kProtocolViolation,
          "the server's answer to status has no state or no devices"};
}

// An endpoint names devices as clients do: by name, by UUID or by a prefix of the UUID.
bool IsOneOf(const DeviceFacts& device, const std::vector<std::string>& names) {
  return names.empty() || std::ranges::any_of(names, [&](const std::string& name) {
           const bool is_uuid =
               name.size() > 4 && (name.starts_with("GPU-") || name.starts_with("MIG-"));
           return name == device.name || (is_uuid && device.uuid.starts_with(name));
         });
}

std::vector<Share> GetShares(const admin::ContainerEndpoint& endpoint,
                             std::span<const DeviceFacts> devices, std::size_t count) {
  std::vector<Share> shares;
  for (const DeviceFacts& device : devices) {
    if (!IsOneOf(device, endpoint.devices)) continue;
    for (std::size_t number = 0; number < count; ++number) {
      std::string id = device.name + "/" + std::to_string(number);
      if (id.size() > kShareIdBytesMax) continue;
      shares.push_back(
          {.id = std::move(id), .device = device.name, .is_healthy = device.takes_clients});
    }
  }
  return shares;
}

Status NoCount(const std::string& word) {
  return {StatusCode::kInvalidArgument, "option shares rejected: '" + word +
                                            "'; allowed: a number from 1 to " +
                                            std::to_string(kSharesMax) + " and ENDPOINT=NUMBER"};
}

}  // namespace

Result<ShareCounts> ParseShareCounts(std::span<const std::string> words) {
  ShareCounts counts;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    const std::string endpoint = equals == std::string::npos ? "" : word.substr(0, equals);
    if (equals == 0) return NoCount(word);
    const std::string_view digits =
        std::string_view(word).substr(equals == std::string::npos ? 0 : equals + 1);
    std::size_t count = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    if (error != std::errc() || end != digits.data() + digits.size() || count == 0 ||
        count > kSharesMax) {
      return NoCount(word);
    }
    if (endpoint.empty()) {
      counts.usual = count;
    } else {
      counts.of_endpoint[endpoint] = count;
    }
  }
  return counts;
}

Result<std::vector<DeviceFacts>> GetDevices(const json& status) {
  const auto rows = status.find("devices"), server = status.find("server");
  const bool are_there = rows != status.end() && rows->is_array() && server != status.end();
  const std::string phase = are_there ? admin::Text(*server, "state") : "";
  if (phase.empty()) return InvalidReply();
  std::vector<DeviceFacts> devices;
  for (const json& row : *rows) {
    if (!row.is_object()) return InvalidReply();
    std::string name = admin::Text(row, "device");
    const std::string state = admin::Text(row, "state");
    if (name.empty() || state.empty()) return InvalidReply();
    const auto memory = row.find("memory_bytes");
    const bool has_memory = memory != row.end() && memory->is_number_unsigned();
    devices.push_back({.name = std::move(name),
                       .uuid = admin::Text(row, "uuid"),
                       .product = admin::Text(row, "name"),
                       .memory_bytes = has_memory ? memory->get<std::uint64_t>() : 0,
                       .takes_clients = phase == "serving" && state == "ready"});
  }
  return devices;
}

Result<Offers> GetOffers(const json& endpoints, const json& status, const ShareCounts& counts) {
  const Result<std::vector<admin::ContainerEndpoint>> parsed =
      admin::ReadContainerEndpoints(endpoints);
  if (!parsed.ok()) return parsed.status();
  const Result<std::vector<DeviceFacts>> devices = GetDevices(status);
  if (!devices.ok()) return devices.status();
  Offers found;
  for (const admin::ContainerEndpoint& endpoint : *parsed) {
    if (!endpoint.fits.ok()) {
      found.rejections.push_back(endpoint.fits.message());
      continue;
    }
    const auto count = counts.of_endpoint.find(endpoint.name);
    found.offers.push_back(
        {.resource = kResourceDomain + endpoint.name,
         .endpoint = endpoint,
         .shares = GetShares(endpoint, *devices,
                             count == counts.of_endpoint.end() ? counts.usual : count->second)});
  }
  return found;
}

Result<Grant> GetGrant(const Offer& offer, std::span<const std::string> ids) {
  if (ids.size() != 1) {
    return Status(StatusCode::kInvalidArgument,
                  "rejected: asked for " + std::to_string(ids.size()) + " of " + offer.resource +
                      ", allowed: 1 for each container, because a share only gives access to the "
                      "device; the "
                      "server's endpoint limits how much of the device its clients get");
  }
  const auto share = std::ranges::find(offer.shares, ids.front(), &Share::id);
  if (share == offer.shares.end()) {
    return Status(StatusCode::kNotFound, "rejected: '" + ids.front().substr(0, kShareIdBytesMax) +
                                             "' is none of the " +
                                             std::to_string(offer.shares.size()) + " shares of " +
                                             offer.resource + " on this node");
  }
  return Grant{.variables = {{admin::kSocketVariable, offer.endpoint.socket_inside},
                             {admin::kDeviceVariable, share->device}},
               .directory = offer.endpoint.directory,
               .directory_inside = admin::kContainerDirectory,
               .cdi_device = std::string(admin::kCdiKind) + "=" + offer.endpoint.name};
}

std::vector<std::string> GetPreferred(const Offer& offer, std::span<const std::string> available,
                                      std::span<const std::string> needed, std::size_t size) {
  std::vector<std::string> chosen(
      needed.begin(), needed.begin() + static_cast<std::ptrdiff_t>(std::min(needed.size(), size)));
  const std::set<std::string_view> free(available.begin(), available.end());
  const std::set<std::string_view> taken(chosen.begin(), chosen.end());
  std::map<std::string_view, std::vector<const Share*>> left;  // By device.
  for (const Share& share : offer.shares) {
    if (free.contains(share.id) && !taken.contains(share.id)) left[share.device].push_back(&share);
  }
  while (chosen.size() < size) {
    const auto most =
        std::ranges::max_element(left, {}, [](const auto& device) { return device.second.size(); });
    if (most == left.end() || most->second.empty()) break;
    chosen.push_back(most->second.front()->id);
    most->second.erase(most->second.begin());
  }
  return chosen;
}

}  // namespace gpushared::kubernetes
