// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/mig_parted_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace gpushared::mig {
namespace {

constexpr std::size_t kQuotedMax = 64;
constexpr const char* kVersion = "v1";

// An error with its line; converted to a Status once the name of the file is known.
struct Rejection : std::runtime_error {
  Rejection(const YAML::Node& node, const std::string& why)
      : std::runtime_error(why), line(node.Mark().line + 1) {}
  int line;
};

std::string Quoted(const std::string& text) { return "'" + text.substr(0, kQuotedMax) + "'"; }

std::string Scalar(const YAML::Node& node, const std::string& what) {
  if (!node.IsScalar()) throw Rejection(node, what + " must be one value");
  return node.Scalar();
}

std::uint32_t Number(const YAML::Node& node, const std::string& what, std::uint32_t most) {
  const std::string text = Scalar(node, what);
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number > most) {
    throw Rejection(node, what + " must be a number from 0 to " + std::to_string(most) + ", not " +
                              Quoted(text));
  }
  return number;
}

bool Truth(const YAML::Node& node, const std::string& what) {
  bool truth = false;
  if (!node.IsScalar() || !YAML::convert<bool>::decode(node, truth)) {
    throw Rejection(node, what + " must be true or false");
  }
  return truth;
}

// Parses "0x233010DE".
std::uint32_t Model(const YAML::Node& node) {
  const std::string text = Scalar(node, "a device-filter");
  std::uint32_t model = 0;
  const char* const digits = text.data() + 2;
  const bool is_hex = text.size() == 10 && (text.starts_with("0x") || text.starts_with("0X"));
  const auto parsed = is_hex ? std::from_chars(digits, text.data() + text.size(), model, 16)
                             : std::from_chars_result{digits, std::errc::invalid_argument};
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
    throw Rejection(node, "a device-filter must be 0x and 8 hex digits, not " + Quoted(text));
  }
  return model;
}

// Calls `take(key, value)` for each key of a map, and rejects duplicates.
template <typename Take>
void ForEachKey(const YAML::Node& map, const std::string& what, std::size_t most, Take&& take) {
  if (!map.IsMap()) throw Rejection(map, what + " must be a map of keys and values");
  if (map.size() > most) {
    throw Rejection(map, what + " has " + std::to_string(map.size()) +
                             " keys, allowed: " + std::to_string(most));
  }
  std::set<std::string> seen;
  for (const auto& each : map) {
    const std::string key = Scalar(each.first, "a key of " + what);
    if (!seen.insert(key).second) {
      throw Rejection(each.first, "key " + Quoted(key) + " of " + what + " is given twice");
    }
    take(key, each.first, each.second);
  }
}

void CheckLength(const YAML::Node& list, const std::string& what, std::size_t most) {
  if (!list.IsSequence()) throw Rejection(list, what + " must be a list");
  if (list.size() > most) {
    throw Rejection(list, what + " has " + std::to_string(list.size()) +
                              " items, allowed: " + std::to_string(most));
  }
}

std::vector<std::uint32_t> Models(const YAML::Node& node) {
  if (node.IsScalar()) return {Model(node)};
  CheckLength(node, "device-filter", kItemsMax);
  std::vector<std::uint32_t> models;
  for (const YAML::Node& item : node) models.push_back(Model(item));
  return models;
}

std::optional<std::vector<std::uint32_t>> Indices(const YAML::Node& node) {
  if (node.IsScalar()) {
    if (node.Scalar() == "all") return std::nullopt;
    throw Rejection(node, "devices must be all or a list of numbers, not " + Quoted(node.Scalar()));
  }
  CheckLength(node, "devices", kItemsMax);
  std::vector<std::uint32_t> indices;
  for (const YAML::Node& item : node) indices.push_back(Number(item, "a device", kItemsMax));
  return indices;
}

DeviceCounts Devices(const YAML::Node& node) {
  DeviceCounts devices;
  ForEachKey(node, "mig-devices", kItemsMax,
             [&](const std::string& key, const YAML::Node& at, const YAML::Node& value) {
               if (!IsDeviceName(key)) {
                 throw Rejection(at, Quoted(key) + " is no name of a MIG device, such as 1g.5gb");
               }
               devices[key] = Number(value, "the count of " + key, kDeviceCountMax);
             });
  return devices;
}

ConfigEntry Entry(const YAML::Node& node) {
  ConfigEntry entry{.line = node.Mark().line + 1};
  bool has_indices = false, has_enabled = false, has_devices = false;
  ForEachKey(node, "an entry", kItemsMax,
             [&](const std::string& key, const YAML::Node& at, const YAML::Node& value) {
               if (key == "device-filter") {
                 entry.models = Models(value);
               } else if (key == "devices") {
                 has_indices = true;
                 entry.indices = Indices(value);
               } else if (key == "mig-enabled") {
                 has_enabled = true;
                 entry.is_enabled = Truth(value, key);
               } else if (key == "mig-devices") {
                 has_devices = true;
                 entry.devices = Devices(value);
               } else {
                 throw Rejection(at, "unknown key " + Quoted(key) +
                                         ", an entry has device-filter, devices, mig-enabled and "
                                         "mig-devices");
               }
             });
  if (!has_indices) throw Rejection(node, "the entry lacks devices");
  if (!has_enabled) throw Rejection(node, "the entry lacks mig-enabled");
  if (entry.is_enabled && !has_devices) {
    throw Rejection(
        node,
        "the entry lacks mig-devices, which mig-enabled: true requires; write {} for no devices");
  }
  if (!entry.is_enabled && !entry.devices.empty()) {
    throw Rejection(node, "the entry has both mig-devices and mig-enabled: false");
  }
  return entry;
}

ConfigFile File(const YAML::Node& root) {
  ConfigFile file;
  bool has_version = false;
  ForEachKey(
      root, "the file", kItemsMax,
      [&](const std::string& key, const YAML::Node& at, const YAML::Node& value) {
        if (key == "version") {
          has_version = true;
          const std::string version = Scalar(value, key);
          if (version == kVersion) return;
          throw Rejection(value, "version " + Quoted(version) + " is not known, only " + kVersion);
        }
        if (key != "mig-configs") {
          throw Rejection(at,
                          "unknown key " + Quoted(key) + ", a file has version and mig-configs");
        }
        ForEachKey(value, key, kConfigsMax,
                   [&](const std::string& name, const YAML::Node&, const YAML::Node& entries) {
                     CheckLength(entries, Quoted(name), kEntriesMax);
                     if (entries.size() == 0)
                       throw Rejection(entries, Quoted(name) + " has no entry");
                     NamedConfig& config = file.emplace_back(NamedConfig{.name = name});
                     for (const YAML::Node& entry : entries) config.entries.push_back(Entry(entry));
                   });
      });
  if (!has_version) throw Rejection(root, "the file lacks version: v1");
  return file;
}

Status Rejected(const std::string& name, int line, const std::string& why) {
  return {StatusCode::kInvalidArgument, name + ":" + std::to_string(line) + ": " + why};
}

void WriteEntry(YAML::Emitter& out, const ConfigEntry& entry) {
  out << YAML::BeginMap;
  if (!entry.models.empty()) {
    out << YAML::Key << "device-filter" << YAML::Value << YAML::Flow << YAML::BeginSeq;
    for (const std::uint32_t model : entry.models) {
      char text[16];
      std::snprintf(text, sizeof text, "0x%08X", model);
      out << YAML::DoubleQuoted << text;
    }
    out << YAML::EndSeq;
  }
  out << YAML::Key << "devices" << YAML::Value;
  if (entry.indices) {
    out << YAML::Flow << *entry.indices;
  } else {
    out << "all";
  }
  out << YAML::Key << "mig-enabled" << YAML::Value << entry.is_enabled;
  if (entry.is_enabled) {
    out << YAML::Key << "mig-devices" << YAML::Value;
    if (entry.devices.empty()) out << YAML::Flow;
    out << YAML::BeginMap;
    for (const auto& [device, count] : entry.devices) {
      out << YAML::Key << YAML::DoubleQuoted << device << YAML::Value << count;
    }
    out << YAML::EndMap;
  }
  out << YAML::EndMap;
}

}  // namespace

bool ConfigEntry::IsAbout(std::uint32_t index, std::uint32_t model) const {
  const bool is_model = models.empty() || std::ranges::find(models, model) != models.end();
  return is_model && (!indices || std::ranges::find(*indices, index) != indices->end());
}

Result<ConfigFile> ParseConfigFile(const std::string& text, const std::string& name) try {
  if (text.size() > kConfigBytesMax) {
    return Rejected(name, 1,
                    "the file has " + std::to_string(text.size()) +
                        " bytes, allowed: " + std::to_string(kConfigBytesMax));
  }
  std::vector<YAML::Node> documents = YAML::LoadAll(text);
  if (documents.size() != 1) return Rejected(name, 1, "the file must have one document");
  return File(documents[0]);
} catch (const Rejection& rejection) {
  return Rejected(name, rejection.line, rejection.what());
} catch (const YAML::Exception& error) {
  return Rejected(name, error.mark.line + 1, "invalid YAML: " + error.msg);
}

std::string WriteConfigFile(const ConfigFile& file) {
  YAML::Emitter out;
  out << YAML::BeginMap << YAML::Key << "version" << YAML::Value << kVersion;
  out << YAML::Key << "mig-configs" << YAML::Value << YAML::BeginMap;
  for (const NamedConfig& config : file) {
    out << YAML::Key << config.name << YAML::Value << YAML::BeginSeq;
    for (const ConfigEntry& entry : config.entries) WriteEntry(out, entry);
    out << YAML::EndSeq;
  }
  out << YAML::EndMap << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

const NamedConfig* FindConfig(const ConfigFile& file, std::string_view name) {
  const auto found = std::ranges::find(file, name, &NamedConfig::name);
  return found == file.end() ? nullptr : &*found;
}

}  // namespace gpushared::mig
