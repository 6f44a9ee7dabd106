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
  int line = 0;  // Its first line in the file; 0 if it was not read from a file.
  // PCI device and vendor ids, such as 0x233010DE. If empty, all models.
  std::vector<std::uint32_t> models;
  // Numbers as in nvidia-smi. If unset, all GPUs.
  std::optional<std::vector<std::uint32_t>> indices;
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
inline constexpr std::size_t kEntriesMax = 256;  // Limit of entries per configuration.
inline constexpr std::size_t kItemsMax = 256;    // Limit of items per list of an entry.
inline constexpr std::uint32_t kDeviceCountMax = 1024;

// `name` is the prefix of rejections: "mig.yaml:7: ...". Rejects unknown and duplicate keys.
Result<ConfigFile> ParseConfigFile(const std::string& text, const std::string& name);
std::string WriteConfigFile(const ConfigFile& file);

// Returns null if no configuration has that name.
const NamedConfig* FindConfig(const ConfigFile& file, std::string_view name);

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_MIG_PARTED_FILE_H_
