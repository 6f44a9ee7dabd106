// SPDX-License-Identifier: Apache-2.0
// Carries plans out, all or none, with a way back that survives a kill.

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

// Whoever has devices open without using them: a running server, whose workers do.
class Tenant {
 public:
  virtual ~Tenant() = default;
  // Gives the GPU or instance of this UUID up, and takes it no more. Returns ok when nothing of the
  // tenant is on it, also when it never had it.
  virtual Status Leave(const std::string& uuid) = 0;
  // What it left is its again, if it is among those that are `there`. Nothing: nobody knows what
  // is.
  virtual void ComeBack(const std::optional<std::vector<std::string>>& there) = 0;
};

// Moves GPUs from one layout to another.
//
// The way back is found by looking at the GPU, not by remembering steps. So it is the same after a
// call that failed and, by Restore in a new process, after a kill.
//
// Thread-compatible; borrows what it is given.
class Mover {
 public:
  using Say = std::function<void(const std::string& sentence)>;

  Mover(const GpuControl& control, const StateFile& state, Tenant& tenant, Say say)
      : control_(control), state_(state), tenant_(tenant), say_(std::move(say)) {}

  // All changes are made, and kept for the next boot; or all GPUs are as they were, and the Status
  // says why. If the way back fails as well, the state file has it, and Restore goes it.
  // kUnavailable: an earlier change was cut off and is to be restored first.
  Status Apply(const std::vector<Change>& changes);

  // The layouts become those of the next boot. Nothing else changes.
  Status SaveForBoot(const std::vector<Change>& changes);

  // Takes back what was cut off; all other GPUs that the state file knows get their layout of the
  // boot. One that fails does not keep the others from theirs.
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
  const Say say_;
};

// Who uses an instance or a GPU, but for the processes `not_counted`: "process 4711 (python3)".
// Empty when nobody does.
std::string GetUsers(const std::vector<std::uint32_t>& processes,
                     const std::vector<std::uint32_t>& not_counted = {});

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_APPLY_H_
