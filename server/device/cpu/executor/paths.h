// SPDX-License-Identifier: Apache-2.0
// Lets the lanes of a warp go different ways for longer than a branch. A warp is cut into
// *paths* when its active lanes wait for others of the same warp: at a barrier, at a
// shuffle, or spinning on memory. Paths that stand at the same place are joined again.
// Almost every warp has one path all its life.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PATHS_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PATHS_H_

#include <cstdint>

#include "server/device/cpu/executor/warp.h"

namespace gpushared::device::executor {

// True when no lane of the warp will run again.
inline bool IsFinished(const Warp& warp) {
  return warp.pause == Pause::kFinished && warp.parked.empty();
}

// To be called when the running path has paused: lets lanes run that its active lanes
// wait for, by parking it, and replaces a finished path by a parked one.
void SettlePath(Warp& warp);

// Makes the next parked path the running one. False when there is none.
bool RotatePaths(Warp& warp);

// Lets lanes of which all members have come act together. True when some lanes may run again.
bool ReleaseConverged(Warp& warp);

// To be called when nothing of the block can run: raises a fault where lanes of the warp wait for
// others of it. False when none do.
bool RaiseMissingLanes(Warp& warp);

// Lets every path that waits at the barrier go on, with the barrier's results.
void ReleaseFromBarrier(Warp& warp, std::uint32_t number, const Barrier& barrier);

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PATHS_H_
