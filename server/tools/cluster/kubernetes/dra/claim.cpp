// SPDX-License-Identifier: Apache-2.0
#include "server/tools/cluster/kubernetes/dra/claim.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "ipc/share.h"
#include "ipc/wire/control.h"
#include "server/telemetry/admin/containers.h"
#include "server/telemetry/admin/json_fields.h"

#include <nlohmann/json.hpp>

namespace gpushared::dra {
namespace {

using kubernetes::DeviceFacts;
using nlohmann::json;

constexpr const char* kParametersVersion = "gpushared.io/v1";
constexpr const char* kParametersKind = "ClientTerms";
// Names of a device's capacities.
constexpr const char* kDeviceTime = "deviceTime";
constexpr const char* kMemory = "memory";
constexpr std::uint64_t kDeviceTimeMax = 1000;  // In thousandths of the device's time.
// The server assigns memory in pages of this size.
constexpr std::uint64_t kMemoryStep = std::uint64_t{2} << 20;
constexpr std::uint64_t kClientsMax = 32;
// In the order of their rank.
constexpr std::array<std::string_view, 3> kClasses = {"high", "normal", "low"};
constexpr std::size_t kNormal = 1;
constexpr const char* kClaimAnnotation = "gpushared.io/prepared";
constexpr const char* kDropInInside = "/usr/lib/gpushared/drop_in";
constexpr std::size_t kUidBytesMax = 63;
constexpr std::size_t kLeaseUidBytes = 26;  // Names of leases have at most 32 bytes.
constexpr std::size_t kAttributeBytesMax = 64;

// The driver's parameters in a DeviceClass or claim.
struct Parameters {
  std::optional<std::size_t> rank;  // Index in kClasses.
  std::optional<std::uint64_t> max_device_time, memory_limit, clients;
  std::optional<double> latency_target_ms;
};
constexpr const char* kParameterNames =
    "class, maxDeviceTime, memoryLimit, latencyTargetMs and clients";

Status Rejected(const std::string& what, const std::string& asked, const std::string& allowed) {
  return {StatusCode::kInvalidArgument, what + ": asked for " + asked + ", allowed: " + allowed};
}

Status About(const ClaimName& claim, const Status& why) {
  return {why.code(), InWords(claim) + " rejected: " + why.message()};
}

std::string GetDeviceLabel(const std::string& name) {
  std::string label;
  for (const char c : name) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    const bool fits = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    label += is_upper ? static_cast<char>(c - 'A' + 'a') : fits ? c : '-';
  }
  return label;
}

Result<std::uint64_t> GetWhole(const std::string& what, const json& value, std::uint64_t least,
                               std::uint64_t most) {
  if (value.is_number_unsigned() && value >= least && value <= most) {
    return value.get<std::uint64_t>();
  }
  return Rejected(what, value.dump(), std::to_string(least) + " to " + std::to_string(most));
}

Status Take(const std::string& key, const json& value, const std::string& source,
            Parameters& parameters) {
  const std::string what = "parameter " + key + " of its " + source;
  if (key == "apiVersion" || key == "kind") {
    const char* const expected = key == "kind" ? kParametersKind : kParametersVersion;
    return value == expected ? Status::Ok() : Rejected(what, value.dump(), expected);
  }
  if (key == "class") {
    const auto found =
        std::ranges::find(kClasses, value.is_string() ? value.get<std::string>() : "");
    if (found == kClasses.end()) return Rejected(what, value.dump(), "high, normal or low");
    parameters.rank = static_cast<std::size_t>(found - kClasses.begin());
    return Status::Ok();
  }
  if (key == "maxDeviceTime" || key == "clients") {
    const bool is_time = key == "maxDeviceTime";
    const Result<std::uint64_t> number =
        GetWhole(what, value, 1, is_time ? kDeviceTimeMax : kClientsMax);
    if (!number.ok()) return number.status();
    (is_time ? parameters.max_device_time : parameters.clients) = *number;
    return Status::Ok();
  }
  if (key == "memoryLimit") {
    const Result<std::uint64_t> bytes =
        ParseQuantity(value.is_string() ? value.get<std::string>() : "");
    if (!bytes.ok()) return Rejected(what, value.dump(), "a size such as \"8Gi\"");
    parameters.memory_limit = *bytes;
    return Status::Ok();
  }
  if (key == "latencyTargetMs") {
    constexpr double kMost = static_cast<double>(ipc::kLatencyTargetNsMax) / 1e6;
    const double target = value.is_number() ? value.get<double>() : 0;
    if (target <= 0 || target > kMost) {
      return Rejected(what, value.dump(), "more than 0, at most " + json(kMost).dump());
    }
    parameters.latency_target_ms = target;
    return Status::Ok();
  }
  return {StatusCode::kInvalidArgument, what + " is unknown, allowed: " + kParameterNames};
}

// Reads the parameters that apply to a request and come from `source`: "FromClass" or "FromClaim".
Result<Parameters> GetParameters(const json& configs, const std::string& request,
                                 const std::string& source) {
  Parameters parameters;
  const std::string in_words = source == "FromClass" ? "DeviceClass" : "config";
  for (const json& config : configs) {
    if (admin::Text(config, "source") != source) continue;
    const json& opaque = Find(config, "/opaque");
    if (admin::Text(opaque, "driver") != kDriverName) continue;
    const json& requests = Find(config, "/requests");
    const std::string main_request = request.substr(0, request.find('/'));
    const bool applies = requests.empty() || std::ranges::any_of(requests, [&](const json& each) {
                           return each == request || each == main_request;
                         });
    if (!applies) continue;
    const json& given = Find(opaque, "/parameters");
    for (const char* needed : {"apiVersion", "kind"}) {
      if (!given.contains(needed)) return Take(needed, nullptr, in_words, parameters);
    }
    for (const auto& [key, value] : given.items()) {
      if (Status status = Take(key, value, in_words, parameters); !status.ok()) return status;
    }
  }
  return parameters;
}

// Capacity that the scheduler allocated, or all of it if the device was allocated as a whole.
Result<std::uint64_t> GetConsumed(const json& result, const char* capacity, std::uint64_t least,
                                  std::uint64_t all) {
  const json& consumed = Find(result, "/consumedCapacity");
  if (consumed.is_null()) return all;
  const std::string text = admin::Text(consumed, capacity);
  const Result<std::uint64_t> amount = ParseQuantity(text);
  if (amount.ok() && *amount >= least && *amount <= all) return *amount;
  return Rejected(std::string(capacity) + " of device '" + admin::Text(result, "device") + "'",
                  "'" + text + "'", std::to_string(least) + " to " + std::to_string(all));
}

// Applies the claim's parameters within the bounds that its DeviceClass sets, because only
// administrators can change a DeviceClass.
Result<Parameters> Combine(const Parameters& by_class, const Parameters& by_claim,
                           std::uint64_t device_time, std::uint64_t memory) {
  Parameters most = by_class;
  if (!most.rank) most.rank = kNormal;
  most.max_device_time = std::max(device_time, most.max_device_time.value_or(0));
  most.memory_limit = std::max(memory, most.memory_limit.value_or(0));
  Parameters terms = most;
  terms.rank = by_claim.rank.value_or(*most.rank);
  terms.max_device_time = by_claim.max_device_time.value_or(*most.max_device_time);
  terms.memory_limit = by_claim.memory_limit.value_or(*most.memory_limit);
  terms.clients = by_claim.clients ? by_claim.clients : most.clients.value_or(1);
  if (by_claim.latency_target_ms) terms.latency_target_ms = by_claim.latency_target_ms;
  const std::string of_config = " of its config";
  if (*terms.rank < *most.rank) {
    return Rejected("class" + of_config, std::string(kClasses.at(*terms.rank)),
                    std::string(kClasses.at(*most.rank)) + " at most, by its DeviceClass");
  }
  const auto is_within = [](std::uint64_t asked, std::uint64_t least, std::uint64_t limit) {
    return asked >= least && asked <= limit;
  };
  if (!is_within(*terms.max_device_time, device_time, *most.max_device_time)) {
    return Rejected("maxDeviceTime" + of_config, std::to_string(*terms.max_device_time),
                    std::to_string(device_time) + " (its deviceTime) to " +
                        std::to_string(*most.max_device_time));
  }
  if (!is_within(*terms.memory_limit, memory, *most.memory_limit)) {
    return Rejected(
        "memoryLimit" + of_config, std::to_string(*terms.memory_limit),
        std::to_string(memory) + " (its memory) to " + std::to_string(*most.memory_limit));
  }
  if (by_claim.latency_target_ms && !by_class.latency_target_ms && *terms.rank > 0) {
    return Rejected("latencyTargetMs" + of_config, std::to_string(*by_claim.latency_target_ms),
                    "none, unless its class is high or its DeviceClass has one");
  }
  if (*terms.clients > memory / kMemoryStep) {
    return Rejected(
        "clients", std::to_string(*terms.clients),
        std::to_string(memory / kMemoryStep) + ", because each needs 2Mi of its memory");
  }
  return terms;
}

// A part of a device, and what a claim's programs may do with it.
struct Part {
  Parameters parameters;
  std::uint64_t device_time = 0, memory = 0;
};

Result<Part> ReadPart(const json& result, const json& configs, const DeviceFacts& device) {
  if (Find(result, "/adminAccess") == true) {
    return Rejected("adminAccess", "true",
                    "false, because gpusharedctl shows the device's state without a claim");
  }
  const Result<std::uint64_t> time = GetConsumed(result, kDeviceTime, 1, kDeviceTimeMax);
  if (!time.ok()) return time.status();
  const Result<std::uint64_t> memory =
      GetConsumed(result, kMemory, kMemoryStep, device.memory_bytes);
  if (!memory.ok()) return memory.status();
  const std::string request = admin::Text(result, "request");
  const Result<Parameters> by_class = GetParameters(configs, request, "FromClass");
  if (!by_class.ok()) return by_class.status();
  const Result<Parameters> by_claim = GetParameters(configs, request, "FromClaim");
  if (!by_claim.ok()) return by_claim.status();
  const Result<Parameters> combined = Combine(*by_class, *by_claim, *time, *memory);
  if (!combined.ok()) return combined.status();
  return Part{*combined, *time, *memory};
}

// JSON's strings, numbers and arrays are valid TOML.
std::string GetTerms(const Part& part) {
  const Parameters& parameters = part.parameters;
  std::string terms;
  const auto add = [&](const char* key, const json& value) {
    terms += key + (" = " + value.dump()) + "\n";
  };
  const auto size = [](std::uint64_t bytes) { return std::to_string(bytes) + "B"; };
  add("class", kClasses.at(*parameters.rank));
  // Claims of one class share a busy device in proportion to their device time.
  add("weight", std::max<std::uint64_t>(part.device_time / *parameters.clients, 1));
  add("max_share", ipc::ShareText(static_cast<std::uint32_t>(*parameters.max_device_time)));
  add("memory", size(part.memory));
  add("client_memory", size(part.memory / *parameters.clients));
  if (*parameters.memory_limit > part.memory) add("memory_limit", size(*parameters.memory_limit));
  if (parameters.latency_target_ms) add("latency_targets", true);
  return terms;
}

}  // namespace

const json& Find(const json& object, const std::string& path) {
  static const json kNothing;
  const json::json_pointer pointer(path);
  return object.contains(pointer) ? object.at(pointer) : kNothing;
}

std::string InWords(const ClaimName& claim) {
  return "claim '" + claim.space + "/" + claim.name + "'";
}

Status CheckUid(const ClaimName& claim) {
  const bool fits = !claim.uid.empty() && claim.uid.size() <= kUidBytesMax &&
                    std::ranges::all_of(claim.uid, [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
                    });
  return fits ? Status::Ok()
              : About(claim, Rejected("its UID", "'" + claim.uid.substr(0, kUidBytesMax) + "'",
                                      "at most 63 of a to z, 0 to 9 and -"));
}

std::string GetLeaseName(const std::string& uid) {
  std::string digits = uid;
  std::erase(digits, '-');
  return kLeasePrefix + digits.substr(0, kLeaseUidBytes);
}

Result<std::uint64_t> ParseQuantity(std::string_view text) {
  struct Suffix {
    std::string_view name;
    std::uint64_t base;
    int power;
  };
  constexpr std::array kSuffixes = {
      Suffix{"", 1, 0},      Suffix{"k", 1000, 1},  Suffix{"M", 1000, 2},  Suffix{"G", 1000, 3},
      Suffix{"T", 1000, 4},  Suffix{"P", 1000, 5},  Suffix{"E", 1000, 6},  Suffix{"Ki", 1024, 1},
      Suffix{"Mi", 1024, 2}, Suffix{"Gi", 1024, 3}, Suffix{"Ti", 1024, 4}, Suffix{"Pi", 1024, 5},
      Suffix{"Ei", 1024, 6}};
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto suffix = std::ranges::find(
      kSuffixes, text.substr(static_cast<std::size_t>(end - text.data())), &Suffix::name);
  bool fits = error == std::errc() && suffix != kSuffixes.end();
  for (int i = 0; fits && i < suffix->power; ++i) {
    fits = !__builtin_mul_overflow(number, suffix->base, &number);
  }
  if (fits) return number;
  return Rejected("quantity", "'" + std::string(text.substr(0, kUidBytesMax)) + "'",
                  "a whole number such as 250, 1k or 8Gi");
}

Result<Claim> ReadClaim(const ClaimName& name, const json& object, const std::string& node,
                        std::span<const DeviceFacts> devices) {
  const std::string uid = admin::Text(Find(object, "/metadata"), "uid");
  if (uid != name.uid) {
    return Status(StatusCode::kNotFound, InWords(name) + " rejected: the kubelet asked for UID " +
                                             name.uid + ", the API server has '" + uid +
                                             "', because the claim was deleted or replaced");
  }
  Claim claim = {.name = name, .devices = {}, .terms = "", .variables = {}};
  json names = json::array();
  std::string known;
  for (const DeviceFacts& each : devices) known += " " + GetDeviceLabel(each.name);
  const json& configs = Find(object, "/status/allocation/devices/config");
  for (const json& result : Find(object, "/status/allocation/devices/results")) {
    if (admin::Text(result, "driver") != kDriverName || admin::Text(result, "pool") != node)
      continue;
    const std::string label = admin::Text(result, "device");
    const auto device = std::ranges::find(
        devices, label, [](const DeviceFacts& each) { return GetDeviceLabel(each.name); });
    if (device == devices.end()) {
      return About(name, Rejected("device", "'" + label + "'",
                                  "one of the node's server:" + (known.empty() ? " none" : known)));
    }
    const Result<Part> part = ReadPart(result, configs, *device);
    if (!part.ok()) return About(name, part.status());
    const std::string terms = GetTerms(*part);
    const bool is_second = std::ranges::find(names, json(device->name)) != names.end();
    if (is_second || (!claim.terms.empty() && claim.terms != terms)) {
      return About(name, Rejected(is_second ? "device '" + label + "'" : "devices",
                                  is_second ? "twice" : "different terms",
                                  "one claim for each part, because a claim has one endpoint"));
    }
    claim.terms = terms;
    names.push_back(device->name);
    claim.devices.push_back({.request = admin::Text(result, "request"),
                             .pool = node,
                             .device = label,
                             .uuid = device->uuid});
    if (const auto& target = part->parameters.latency_target_ms; target) {
      claim.variables["GPUSHARED_LATENCY_TARGET"] = json(*target).dump();
    }
  }
  if (claim.devices.empty()) {
    return Status(StatusCode::kNotFound, InWords(name) + " rejected: no device of " + kDriverName +
                                             " on node '" + node + "' is allocated to it");
  }
  if (names.size() == 1) claim.variables[admin::kDeviceVariable] = names.front();
  // A claim that was made from a template belongs to its pod. Other claims may be shared by pods.
  json owner = {"namespace:" + name.space};
  for (const json& each : Find(object, "/metadata/ownerReferences")) {
    if (admin::Text(each, "kind") != "Pod") continue;
    owner.push_back("pod:" + admin::Text(each, "name"));
    break;
  }
  // The endpoint admits every user, because the users of a container can have any uid. Only the
  // claim's pods can reach the socket.
  claim.terms += "name = " + json(GetLeaseName(name.uid)).dump() +
                 "\nwho = \"everyone\"\ndevices = " + names.dump() + "\nowner = " + owner.dump() +
                 "\n";
  return claim;
}

json GetCdiFile(const Claim& claim, const std::string& socket, const ContainerSettings& settings) {
  const std::filesystem::path path = socket;
  std::map<std::string, std::string> variables = claim.variables;
  variables[admin::kSocketVariable] =
      std::string(admin::kContainerDirectory) + "/" + path.filename().string();
  std::vector<admin::ContainerMount> mounts = {
      {.directory = path.parent_path(), .directory_inside = admin::kContainerDirectory}};
  if (!settings.drop_in.empty()) {
    mounts.push_back(
        {.directory = settings.drop_in, .directory_inside = kDropInInside, .has_programs = true});
    variables["LD_LIBRARY_PATH"] = kDropInInside;
  }
  if (!settings.gpu_cdi_kind.empty()) {
    variables["GPUSHARED_MODE"] = "gate";
    variables.erase(admin::kDeviceVariable);  // In gate mode the driver chooses the GPU.
  }
  json devices = json::array();
  for (const AllocatedDevice& each : claim.devices) {
    devices.push_back({each.request, each.pool, each.device, each.uuid});
  }
  const json prepared = {{"namespace", claim.name.space}, {"name", claim.name.name},
                         {"uid", claim.name.uid},         {"devices", devices},
                         {"terms", claim.terms},          {"variables", claim.variables}};
  return {{"cdiVersion", "0.6.0"},
          {"kind", kCdiKind},
          {"annotations", {{kClaimAnnotation, prepared.dump()}}},
          {"devices",
           {{{"name", claim.name.uid}, {"containerEdits", admin::CdiEdits(variables, mounts)}}}}};
}

Result<Claim> ReadCdiFile(const json& file) {
  const Status invalid(StatusCode::kProtocolViolation, "it does not contain a prepared claim");
  const json& annotations = Find(file, "/annotations");
  const json prepared =
      json::parse(admin::Text(annotations, kClaimAnnotation), nullptr, /*allow_exceptions=*/false);
  Claim claim = {.name = {.space = admin::Text(prepared, "namespace"),
                          .name = admin::Text(prepared, "name"),
                          .uid = admin::Text(prepared, "uid")},
                 .devices = {},
                 .terms = admin::Text(prepared, "terms"),
                 .variables = {}};
  if (claim.terms.empty() || !CheckUid(claim.name).ok()) return invalid;
  for (const json& device : Find(prepared, "/devices")) {
    const bool are_texts =
        device.is_array() && device.size() == 4 &&
        std::ranges::all_of(device, [](const json& each) { return each.is_string(); });
    if (!are_texts) return invalid;
    claim.devices.push_back(
        {.request = device[0], .pool = device[1], .device = device[2], .uuid = device[3]});
  }
  for (const auto& [key, value] : Find(prepared, "/variables").items()) {
    if (value.is_string()) claim.variables[key] = value;
  }
  return claim;
}

std::vector<std::string> GetCdiNames(const Claim& claim, const AllocatedDevice& device,
                                     const ContainerSettings& settings) {
  std::vector<std::string> names;
  // The claim's own device is named only for the first device of each request, because a container
  // must not get the same mount twice.
  const auto first = std::ranges::find(claim.devices, device.request, &AllocatedDevice::request);
  if (first->device == device.device) names.push_back(kCdiKind + ("=" + claim.name.uid));
  const bool is_gpu = !settings.gpu_cdi_kind.empty() && !device.uuid.empty();
  if (is_gpu) names.push_back(settings.gpu_cdi_kind + "=" + device.uuid);
  return names;
}

json GetSliceSpec(const std::string& node, std::span<const DeviceFacts> devices,
                  const std::string& server_version, std::int64_t generation) {
  json rows = json::array();
  for (const DeviceFacts& device : devices) {
    const std::uint64_t memory = device.memory_bytes / kMemoryStep * kMemoryStep;
    if (!device.takes_clients || memory == 0) continue;
    json attributes = {{"productName", {{"string", device.product.substr(0, kAttributeBytesMax)}}},
                       {"serverVersion", {{"version", server_version}}}};
    if (!device.uuid.empty()) attributes["uuid"] = {{"string", device.uuid}};
    // A request that names no amount gets the whole capacity, as with devices that are not shared.
    const auto capacity = [](std::uint64_t all, std::uint64_t step) -> json {
      const std::string most = std::to_string(all), least = std::to_string(step);
      return {
          {"value", most},
          {"requestPolicy",
           {{"default", most}, {"validRange", {{"min", least}, {"max", most}, {"step", least}}}}}};
    };
    rows.push_back(
        {{"name", GetDeviceLabel(device.name)},
         {"allowMultipleAllocations", true},
         {"attributes", attributes},
         {"capacity",
          {{kDeviceTime, capacity(kDeviceTimeMax, 1)}, {kMemory, capacity(memory, kMemoryStep)}}}});
  }
  return {{"driver", kDriverName},
          {"nodeName", node},
          {"pool", {{"name", node}, {"generation", generation}, {"resourceSliceCount", 1}}},
          {"devices", rows}};
}

}  // namespace gpushared::dra
