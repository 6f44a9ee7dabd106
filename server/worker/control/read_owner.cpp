// SPDX-License-Identifier: Apache-2.0
#include "server/worker/control/read_owner.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace gpushared::server {
namespace {

constexpr std::size_t kFileBytesMax = 4096;  // A path has at most this size.
constexpr std::size_t kIdBytes = 64;         // Length of a container's id: hexadecimal digits.
constexpr std::size_t kShownIdBytes = 12;
constexpr std::size_t kLinksMax = 4096;

std::string ReadBeginning(const std::string& path) {
  std::string text(kFileBytesMax, '\0');
  std::ifstream file(path);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

bool IsHex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// Returns the first container id in the cgroup's path. A container runtime has created this part of
// the path. Later parts may have been created by the container itself, and all parts below a user's
// slice by that user, so these parts could imitate the id of another container.
std::string FindContainer(std::string_view cgroup) {
  cgroup = cgroup.substr(0, cgroup.find("user.slice"));
  for (std::size_t begin = 0; begin < cgroup.size();) {
    std::size_t end = begin;
    while (end < cgroup.size() && IsHex(cgroup[end])) ++end;
    if (end - begin == kIdBytes) return std::string(cgroup.substr(begin, kIdBytes));
    begin = end + 1;
  }
  return "";
}

// Returns whether the text can be a name in Kubernetes.
bool IsName(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  });
}

// Takes the names from "POD_NAMESPACE_CONTAINER-ID.log"; none of them contains an underscore.
bool TakeNames(std::string_view link, std::string_view ending, ipc::Owner& owner) {
  if (!link.ends_with(ending)) return false;
  link.remove_suffix(ending.size());
  const std::size_t first = link.find('_'), second = link.find('_', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) return false;
  const std::array names = {link.substr(first + 1, second - first - 1), link.substr(0, first),
                            link.substr(second + 1)};
  if (!std::ranges::all_of(names, IsName)) return false;
  owner.Set("namespace", names[0]);
  owner.Set("pod", names[1]);
  owner.Set("container", names[2]);
  return true;
}

void SetContainer(const std::string& id, const std::string& directory, ipc::Owner& owner) {
  owner.Set("container", std::string_view(id).substr(0, kShownIdBytes));
  std::error_code error;
  std::size_t links = 0;
  for (std::filesystem::directory_iterator link(directory, error), end;
       !error && link != end && links < kLinksMax; link.increment(error), ++links) {
    if (TakeNames(link->path().filename().native(), "-" + id + ".log", owner)) return;
  }
}

}  // namespace

void ReadOwner(pid_t pid, ipc::Owner& owner, const OwnerSources& sources) {
  if (pid <= 0) return;
  const std::string process = sources.proc + "/" + std::to_string(pid);
  const std::string program = ReadBeginning(process + "/comm");
  owner.Set("program", std::string_view(program).substr(0, program.rfind('\n')));
  if (!owner.Get("pod").empty() || !owner.Get("container").empty()) return;
  const std::string id = FindContainer(ReadBeginning(process + "/cgroup"));
  if (!id.empty()) SetContainer(id, sources.container_logs, owner);
}

}  // namespace gpushared::server
