// SPDX-License-Identifier: Apache-2.0
// Reads and writes files of NVIDIA's mig-parted.

#ifndef GPUSHARED_SERVER_TOOLS_MIG_MIG_PARTED_FILE_H_
#define GPUSHARED_SERVER_TOOLS_MIG_MIG_PARTED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "server/tools/mig/profile_name.h"

namespace gpushared::mig {

// A requested partitioning, and the GPUs to which it applies.
struct ConfigEntry {
  int line = 0;                       // First line; 0 if it was not read from a file.
  std::vector<std::uint32_t> models;  // PCI device and vendor id, 0x233010DE. Empty: all.
  std::optional<std::vector<std::uint32_t>> indices;  // Numbers of nvidia-smi. Unset: all.
  bool is_enabled = false;
  DeviceCounts devices;

  bool IsAbout(std::uint32_t index, std::uint32_t model) const;
};

struct NamedConfig {
  std::string name;
  std::vector<ConfigEntry> entries;
};

// In the order of the file.
using ConfigFile = std::vector<NamedConfig>;

inline constexpr std::size_t kConfigBytesMax = std::size_t{1} << 20;
inline constexpr std::size_t kConfigsMax = 1024;
inline constexpr std::size_t kEntriesMax = 256;  // Per configuration.
inline constexpr std::size_t kItemsMax = 256;    // Per list of an entry.
inline constexpr std::uint32_t kDeviceCountMax = 1024;

// `name` prefixes rejections: "mig.yaml:7: ...". Rejects unknown and duplicate keys.
Result<ConfigFile> ParseConfigFile(const std::string& text, const std::string& name);
std::string WriteConfigFile(const ConfigFile& file);

// Returns null if no configuration has that name.
const NamedConfig* FindConfig(const ConfigFile& file, std::string_view name);

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_MIG_PARTED_FILE_H_
