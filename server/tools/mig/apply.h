// SPDX-License-Identifier: Apache-2.0
// Executes plans atomically, with a rollback that survives a kill.

#ifndef GPUSHARED_SERVER_TOOLS_MIG_APPLY_H_
#define GPUSHARED_SERVER_TOOLS_MIG_APPLY_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpushared/status.h"

#include "server/tools/mig/gpu.h"
#include "server/tools/mig/state_file.h"

namespace gpushared::mig {

// A program that keeps devices open, such as a running server with its workers.
class Tenant {
 public:
  virtual ~Tenant() = default;
  // Makes the tenant release the GPU or instance with this UUID, and not open it again until
  // ComeBack. Returns Ok once the tenant does not use the device, or if it never did.
  virtual Status Leave(const std::string& uuid) = 0;
  // Allows the tenant to reopen those released devices whose UUIDs are in `there`. No value means
  // that the current devices are unknown.
  virtual void ComeBack(const std::optional<std::vector<std::string>>& there) = 0;
};

// Changes GPUs from one layout to another.
//
// The rollback is derived from the state of the GPU, not from a log of steps. Therefore Restore in
// a new process, after a kill, does the same as the rollback after a failed call.
//
// Thread-compatible; borrows its arguments.
class Mover {
 public:
  using Log = std::function<void(const std::string& message)>;

  Mover(const GpuControl& control, const StateFile& state, Tenant& tenant, Log log)
      : control_(control), state_(state), tenant_(tenant), log_(std::move(log)) {}

  // Either makes all changes and saves them for the next boot, or restores all GPUs and returns the
  // reason. If the rollback fails as well, the state file records it so that Restore can complete
  // it. kUnavailable if an earlier change was interrupted and must be rolled back by Restore first.
  Status Apply(const std::vector<Change>& changes);

  // Saves the layouts for the next boot without any other change.
  Status SaveForBoot(const std::vector<Change>& changes);

  // Rolls back an interrupted change; all other GPUs in the state file get their boot layout. A GPU
  // that fails does not prevent the others from being restored.
  Status Restore();

 private:
  Status Begin(const std::vector<Change>& changes, SavedState& state) const;
  Status GoBack(const std::vector<Change>& changes);
  Status MoveTo(const GpuLayout& target);
  Status MoveMode(const MigGpu& gpu, const GpuLayout& target);
  Status DestroyOthers(const std::string& uuid, const Layout& target);
  Status CreateMissing(const std::string& uuid, const Layout& target);
  void LetComeBack();

  const GpuControl& control_;
  const StateFile& state_;
  Tenant& tenant_;
  const Log log_;
};

// Describes the processes that use an instance or a GPU, except `not_counted`: "process 4711
// (python3)". Empty if there are none.
std::string GetUsers(const std::vector<std::uint32_t>& processes,
                     const std::vector<std::uint32_t>& not_counted = {});

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_APPLY_H_
