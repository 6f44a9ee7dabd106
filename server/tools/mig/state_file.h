// SPDX-License-Identifier: Apache-2.0
// State that survives reboots and kills: the layouts to create at boot, and the change in progress.

#ifndef GPUSHARED_SERVER_TOOLS_MIG_STATE_FILE_H_
#define GPUSHARED_SERVER_TOOLS_MIG_STATE_FILE_H_

#include <string>
#include <utility>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/unique_fd.h"
#include "server/tools/mig/layout.h"

namespace gpushared::mig {

// Current or requested layout of a GPU.
struct GpuLayout {
  std::string gpu;  // Its UUID.
  bool is_enabled = false;
  Layout layout;

  friend bool operator==(const GpuLayout&, const GpuLayout&) = default;
};

struct Change {
  GpuLayout before, after;
};

struct SavedState {
  std::vector<GpuLayout> at_boot;
  // Changes that were started but neither completed nor rolled back. Normally empty.
  std::vector<Change> under_way;

  void SetAtBoot(const GpuLayout& layout);
};

// The state file and a lock next to it, which ensures that only one program at a time changes GPUs.
// Save replaces the contents atomically and returns once they are on disk.
//
// Thread-compatible.
class StateFile {
 public:
  static constexpr const char* kUsualPath = "/var/lib/gpushared-mig/state.json";

  // Creates the directory, accessible to its owner only. kUnavailable if another program has the
  // lock.
  static Result<StateFile> Open(const std::string& path);

  // Returns an empty state if nothing was saved yet.
  Result<SavedState> Load() const;
  Status Save(const SavedState& state) const;
  const std::string& path() const { return path_; }

 private:
  StateFile(std::string path, ipc::UniqueFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  ipc::UniqueFd lock_;
};

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_STATE_FILE_H_
