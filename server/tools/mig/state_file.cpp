// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/state_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <nlohmann/json.hpp>

namespace gpushared::mig {
namespace {

using nlohmann::json;

constexpr std::size_t kStateBytesMax = std::size_t{1} << 20;
constexpr int kVersion = 1;

Status Broken(const std::string& path, const std::string& why) {
  return {StatusCode::kInternal, "MIG state " + path + " " + why};
}

Status FailedCall(const std::string& path, const char* call) {
  return Broken(path, std::string("cannot be saved: ") + call + ": " + std::strerror(errno));
}

json ToJson(const GpuLayout& layout) {
  json instances = json::array();
  for (const Instance& instance : layout.layout) {
    instances.push_back({{"profile_id", instance.profile},
                         {"start", instance.start},
                         {"compute_slices", instance.compute}});
  }
  return {{"gpu", layout.gpu}, {"mig", layout.is_enabled}, {"instances", instances}};
}

GpuLayout FromJson(const json& saved) {
  GpuLayout layout{.gpu = saved.at("gpu"), .is_enabled = saved.at("mig")};
  for (const json& instance : saved.at("instances")) {
    layout.layout.push_back({.profile = instance.at("profile_id"),
                             .start = instance.at("start"),
                             .compute = instance.at("compute_slices")});
  }
  return layout;
}

// Writes the whole text and syncs it to disk.
bool WriteAll(int fd, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return false;
    done += wrote > 0 ? static_cast<std::size_t>(wrote) : 0;
  }
  return ::fsync(fd) == 0;
}

}  // namespace

void SavedState::SetAtBoot(const GpuLayout& layout) {
  const auto found = std::ranges::find(at_boot, layout.gpu, &GpuLayout::gpu);
  if (found == at_boot.end()) {
    at_boot.push_back(layout);
  } else {
    *found = layout;
  }
}

Result<StateFile> StateFile::Open(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path().string();
  std::error_code error;
  if (!directory.empty() && !std::filesystem::exists(directory, error)) {
    if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return FailedCall(path, "mkdir");
  }
  ipc::UniqueFd lock(::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid()) return FailedCall(path, "open of its lock");
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Status(
        StatusCode::kUnavailable,
        "MIG state " + path + " is held by another gpusharedctl mig; wait until it has ended");
  }
  return StateFile(path, std::move(lock));
}

Result<SavedState> StateFile::Load() const try {
  std::ifstream file(path_);
  if (!file) {
    if (std::filesystem::exists(path_)) return FailedCall(path_, "open");
    return SavedState();
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.size() > kStateBytesMax) return Broken(path_, "is longer than 1 MiB");
  const json saved = json::parse(text);
  if (saved.at("version") != kVersion) return Broken(path_, "has a version other than 1");
  SavedState state;
  for (const json& layout : saved.at("at_boot")) state.at_boot.push_back(FromJson(layout));
  for (const json& change : saved.at("under_way")) {
    state.under_way.push_back(
        {.before = FromJson(change.at("before")), .after = FromJson(change.at("after"))});
  }
  return state;
} catch (const json::exception& error) {
  return Broken(path_, std::string("is invalid: ") + error.what());
}

Status StateFile::Save(const SavedState& state) const {
  json saved = {{"version", kVersion}, {"at_boot", json::array()}, {"under_way", json::array()}};
  for (const GpuLayout& layout : state.at_boot) saved["at_boot"].push_back(ToJson(layout));
  for (const Change& change : state.under_way) {
    saved["under_way"].push_back(
        {{"before", ToJson(change.before)}, {"after", ToJson(change.after)}});
  }
  const std::string part = path_ + ".part";
  const ipc::UniqueFd file(::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) return FailedCall(path_, "open");
  if (!WriteAll(file.get(), saved.dump(2) + "\n")) return FailedCall(path_, "write");
  if (::rename(part.c_str(), path_.c_str()) != 0) return FailedCall(path_, "rename");
  const std::filesystem::path directory = std::filesystem::path(path_).parent_path();
  const ipc::UniqueFd kept(
      ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Also syncs the directory, so that the rename is durable.
  if (!kept.valid() || ::fsync(kept.get()) != 0) return FailedCall(path_, "fsync");
  return Status::Ok();
}

}  // namespace gpushared::mig
