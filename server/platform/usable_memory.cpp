// SPDX-License-Identifier: Apache-2.0
#include "server/platform/usable_memory.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

namespace gpushared::server {

namespace {

// Version 1 of control groups represents "no limit" by the largest multiple of the page size that
// it can store.
constexpr std::uint64_t kUnlimitedV1 = std::uint64_t{1} << 62;

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool HasWord(std::string_view list, std::string_view word) {
  return std::ranges::count(Split(list, ','), word) > 0;
}

// Decodes blanks in paths, which the kernel writes as octal numbers: "\040".
std::string Unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(&text[i + 1], &text[i + 4], code, 8).ptr == &text[i + 4]) {
      plain += static_cast<char>(code);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// Paths of this process's control group: in the version 2 hierarchy, and in the version 1 hierarchy
// of the memory controller.
struct OwnGroups {
  std::optional<std::string> v1, v2;
};

OwnGroups ReadGroups(std::string_view cgroup) {
  OwnGroups groups;
  for (const std::string_view line : Split(cgroup, '\n')) {
    // "4:memory:/user.slice", "0::/user.slice"
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    if (controllers.empty()) groups.v2 = path;
    if (HasWord(controllers, "memory")) groups.v1 = path;
  }
  return groups;
}

// Returns the path of `group` relative to a mount of the subtree `root`; empty if the group is
// outside of that subtree.
std::optional<std::string> Below(std::string_view group, std::string_view root) {
  if (root == "/") return std::string(group);
  if (!group.starts_with(root)) return std::nullopt;
  const std::string_view rest = group.substr(root.size());
  if (!rest.empty() && rest.front() != '/') return std::nullopt;
  return std::string(rest);
}

void AddWithParents(const std::string& mount, std::string group, bool is_v2,
                    std::vector<CgroupDirectory>& directories) {
  const auto add = [&](const std::string& path) {
    CgroupDirectory directory{.path = path, .is_v2 = is_v2};
    if (std::ranges::count(directories, directory) == 0)
      directories.push_back(std::move(directory));
  };
  while (!group.empty() && group != "/") {
    add(mount + group);
    group.resize(std::min(group.rfind('/'), group.size()));
  }
  add(mount);
}

}  // namespace

std::vector<CgroupDirectory> MemoryCgroups(std::string_view cgroup, std::string_view mountinfo) {
  const OwnGroups groups = ReadGroups(cgroup);
  std::vector<CgroupDirectory> directories;
  for (const std::string_view line : Split(mountinfo, '\n')) {
    // "31 24 0:27 ROOT MOUNTPOINT OPTIONS TAGS... - TYPE SOURCE SUPEROPTIONS"
    constexpr std::string_view kEndOfTags = " - ";
    const std::size_t tags_end = line.find(kEndOfTags);
    if (tags_end == line.npos) continue;
    const auto front = Split(line.substr(0, tags_end), ' ');
    const auto back = Split(line.substr(tags_end + kEndOfTags.size()), ' ');
    if (front.size() < 5 || back.size() < 3) continue;
    const bool is_v2 = back[0] == "cgroup2";
    if (!is_v2 && !(back[0] == "cgroup" && HasWord(back[2], "memory"))) continue;
    const std::optional<std::string>& group = is_v2 ? groups.v2 : groups.v1;
    if (!group) continue;
    const std::string mount = Unescaped(front[4]);
    // A group outside of the mounted subtree occurs in containers whose /proc/PID/cgroup shows the
    // host's path. Only the container's own group is mounted there.
    const auto below = Below(*group, Unescaped(front[3]));
    AddWithParents(mount, below.value_or(""), is_v2, directories);
  }
  return directories;
}

std::optional<std::uint64_t> GetMemoryLimit(const std::vector<CgroupDirectory>& directories,
                                            const ReadText& read) {
  std::optional<std::uint64_t> smallest;
  for (const CgroupDirectory& directory : directories) {
    const auto text =
        read(directory.path + (directory.is_v2 ? "/memory.max" : "/memory.limit_in_bytes"));
    // Version 2 represents "no limit" by "max", which is not a number.
    std::uint64_t limit = 0;
    if (!text ||
        std::from_chars(text->data(), text->data() + text->size(), limit).ec != std::errc())
      continue;
    if (!directory.is_v2 && limit >= kUnlimitedV1) continue;
    smallest = std::min(smallest.value_or(limit), limit);
  }
  return smallest;
}

std::optional<std::uint64_t> OwnMemoryLimit() {
  const auto read = [](const std::string& path) -> std::optional<std::string> {
    const std::ifstream file(path);
    if (!file) return std::nullopt;
    std::ostringstream text;
    text << file.rdbuf();
    return std::move(text).str();
  };
  const auto cgroup = read("/proc/self/cgroup"), mountinfo = read("/proc/self/mountinfo");
  if (!cgroup || !mountinfo) return std::nullopt;
  return GetMemoryLimit(MemoryCgroups(*cgroup, *mountinfo), read);
}

std::uint64_t UsableMemoryBytes() {
  std::uint64_t bytes = std::uint64_t{1} << 30;
  const long pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) {
    bytes = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes);
  }
  return std::min(bytes, OwnMemoryLimit().value_or(bytes));
}

}  // namespace gpushared::server
