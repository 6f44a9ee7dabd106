// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/holders.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

namespace gpushared::mig {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHoldersMax = 32;

std::string GetName(pid_t pid, const std::string& proc) {
  std::ifstream file(proc + "/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  // Sanitized, because a process chooses its own name.
  std::ranges::replace_if(
      name, [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

std::optional<pid_t> GetPid(const std::string& text) {
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc() || end != text.data() + text.size() || pid <= 0) return std::nullopt;
  return pid;
}

bool HasOpen(const fs::path& descriptors, const std::string& device) {
  std::error_code error;
  for (fs::directory_iterator at(descriptors, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code ignored;
    if (fs::read_symlink(at->path(), ignored) == device) return true;
  }
  return false;
}

}  // namespace

std::vector<Holder> GetHolders(std::uint32_t minor, const std::string& proc) {
  const std::string device = "/dev/nvidia" + std::to_string(minor);
  std::vector<Holder> holders;
  std::error_code error;
  for (fs::directory_iterator at(proc, error), end; !error && at != end; at.increment(error)) {
    const auto pid = GetPid(at->path().filename().string());
    if (!pid || *pid == ::getpid() || !HasOpen(at->path() / "fd", device)) continue;
    holders.push_back({.pid = *pid, .name = GetName(*pid, proc)});
    if (holders.size() == kHoldersMax) break;
  }
  std::ranges::sort(holders, {}, &Holder::pid);
  return holders;
}

std::string ProcessText(pid_t pid, const std::string& proc) {
  const std::string name = GetName(pid, proc);
  return "process " + std::to_string(pid) + (name.empty() ? "" : " (" + name + ")");
}

}  // namespace gpushared::mig
