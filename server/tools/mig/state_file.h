// SPDX-License-Identifier: Apache-2.0
// What survives a reboot and a kill: the layouts to make at boot, and the change under way.

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

// How a GPU is, or is to be.
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
  // What was begun, and not ended in either way. Empty at rest.
  std::vector<Change> under_way;

  void SetAtBoot(const GpuLayout& layout);
};

// The file, and a lock beside it: one program at a time changes GPUs. A new content replaces the
// old as a whole, and is on the disk when Save returns.
//
// Thread-compatible.
class StateFile {
 public:
  static constexpr const char* kUsualPath = "/var/lib/gpushared-mig/state.json";

  // Makes the directory, for its owner alone. kUnavailable: another program has the lock.
  static Result<StateFile> Open(const std::string& path);

  // Nothing saved yet is an empty state.
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
