// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_GPU_GATE_PROBES_H_
#define GPUSHARED_TESTS_GPU_GATE_PROBES_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>

namespace gpushared::testing {

// What one process measures with the driver that its loader finds, by name. Times are in ns.
//
// A probe opens a context of its own on the first GPU, and takes about `time`. It throws
// std::runtime_error with the driver's words where a call fails. One probe a process: how a driver
// is loaded cannot be undone.
using Measured = std::map<std::string, std::string>;
using ProbeTime = std::chrono::milliseconds;

// "p50": a launch of a kernel that does nothing, mean of a batch; "native p50": the same by the
// driver behind the one that serves the process, in turns with it; "library": the file whose
// cuLaunchKernel the first is.
Measured ProbeLaunches(ProbeTime time);

// The time of its thread that a call takes ("write", "record", "query", "is capturing"; a call that
// the driver lacks is absent), and how long after a write's call has begun the host sees the word
// ("seen"), in registered pages of a memfd.
Measured ProbeMarks(ProbeTime time);

// Two processes on one GPU. The parent makes this, all zero, in memory that both map.
struct Pair {
  std::atomic<std::uint32_t> ready;    // Processes whose context and kernels are there.
  std::atomic<std::uint32_t> turn;     // The side that may launch now, 0 or 1.
  std::atomic<std::uint32_t> is_over;  // Side 0 has measured enough.
};

// "kernel", "null": launch to end of a kernel of 20 us and of one that does nothing, p50, with
// nothing else on the GPU. "mps": 1 for a client of MPS.
Measured ProbeAlone(ProbeTime time);
// A kernel of 20 us of each side in turns; side 0 measures its own, launch to end: "p50", "p99".
Measured ProbeTurns(ProbeTime time, Pair& pair, unsigned side);
// Side 1 keeps the GPU full with kernels of 20 us; side 0 launches ones that do nothing.
Measured ProbeBeside(ProbeTime time, Pair& pair, unsigned side);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_GPU_GATE_PROBES_H_
