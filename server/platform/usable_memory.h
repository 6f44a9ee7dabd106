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

// Directory of a control group hierarchy as seen by this process, and the version of the hierarchy.
struct CgroupDirectory {
  std::string path;
  bool is_v2 = false;
  friend bool operator==(const CgroupDirectory&, const CgroupDirectory&) = default;
};

// Returns the directories whose memory limits apply to a process: those of its own group and of all
// enclosing groups, as far as they are mounted here. `cgroup` and `mountinfo` are the contents of
// /proc/PID/cgroup and /proc/PID/mountinfo.
std::vector<CgroupDirectory> MemoryCgroups(std::string_view cgroup, std::string_view mountinfo);

// Returns the text of a file, or no value if it cannot be read.
using ReadText = std::function<std::optional<std::string>(const std::string& path)>;

// Returns the smallest memory limit of these directories, in bytes; empty if there is none.
std::optional<std::uint64_t> GetMemoryLimit(const std::vector<CgroupDirectory>& directories,
                                            const ReadText& read);

// Returns the memory limit of this process, such as that of a container, or MemoryMax= of a systemd
// unit or slice.
std::optional<std::uint64_t> OwnMemoryLimit();

// Returns the memory that this process may use: that of the machine, or less if a limit applies.
std::uint64_t UsableMemoryBytes();

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_PLATFORM_USABLE_MEMORY_H_
