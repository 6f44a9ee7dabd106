// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PLATFORM_USABLE_MEMORY_H_
#define GPUSHARED_SERVER_PLATFORM_USABLE_MEMORY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpushared::server {

// A directory of a control group hierarchy as this process sees it, and which version it is of.
struct CgroupDirectory {
  std::string path;
  bool is_v2 = false;
  friend bool operator==(const CgroupDirectory&, const CgroupDirectory&) = default;
};

// The directories whose memory limits apply to a process: its own group's and those of all groups
// around it, as far as they are mounted here. `cgroup` and `mountinfo` are the texts of
// /proc/PID/cgroup and /proc/PID/mountinfo.
std::vector<CgroupDirectory> MemoryCgroups(std::string_view cgroup, std::string_view mountinfo);

// Returns the text of a file, or nothing if it cannot be read.
using ReadText = std::function<std::optional<std::string>(const std::string& path)>;

// The smallest memory limit of these directories, in bytes; empty where there is none.
std::optional<std::uint64_t> GetMemoryLimit(const std::vector<CgroupDirectory>& directories,
                                            const ReadText& read);

// The same for this process: the limit of a container, or MemoryMax= of a systemd unit or slice.
std::optional<std::uint64_t> OwnMemoryLimit();

// The memory that this process may use: the machine's, or less where a limit says so.
std::uint64_t UsableMemoryBytes();

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_PLATFORM_USABLE_MEMORY_H_
