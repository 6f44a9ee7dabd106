// SPDX-License-Identifier: Apache-2.0
// Lets lanes of a warp diverge for longer than a branch. A warp is split into *paths* when its
// active lanes wait for others of the same warp: at a barrier, at a shuffle, or spinning on memory.
// Paths at the same place are joined again. Almost every warp has a single path.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PATHS_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PATHS_H_

#include <cstdint>

#include "server/device/cpu/executor/warp.h"

namespace gpushared::device::executor {

// Returns whether no lane of the warp will run again.
inline bool IsFinished(const Warp& warp) {
  return warp.pause == Pause::kFinished && warp.waiting.empty();
}

// Called when the running path has paused: sets the path aside if its active lanes wait for other
// lanes, so that those can run, and replaces a finished path by a waiting one.
void SettlePath(Warp& warp);

// Switches to the next waiting path. Returns false if there is none.
bool RotatePaths(Warp& warp);

// Executes collective operations whose members have all arrived. Returns true if some lanes may run
// again.
bool ReleaseConverged(Warp& warp);

// Called when no warp of the block can run: raises a fault if lanes of the warp wait for other
// lanes. Returns false if none do.
bool RaiseMissingLanes(Warp& warp);

// Releases every path that waits at the barrier, with the barrier's results.
void ReleaseFromBarrier(Warp& warp, std::uint32_t number, const Barrier& barrier);

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PATHS_H_
