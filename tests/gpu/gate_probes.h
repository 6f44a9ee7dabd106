// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_GPU_GATE_PROBES_H_
#define GPUSHARED_TESTS_GPU_GATE_PROBES_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>

namespace gpushared::testing {

// Measurements by one process with the driver that its loader finds, by name. Times are in ns.
//
// A probe opens a separate context on the first GPU, and takes about `time`. It throws
// std::runtime_error with the driver's message if a call fails. A process runs only one probe,
// because loading a driver cannot be undone.
using Measured = std::map<std::string, std::string>;
using ProbeTime = std::chrono::milliseconds;

// "p50": a launch of an empty kernel, mean of a batch; "native p50": the same through the driver
// that the library in front forwards to, alternating with it; "library": the file that provides the
// first one's cuLaunchKernel.
Measured ProbeLaunches(ProbeTime time);

// CPU time of its thread that a call takes ("write", "record", "query", "is capturing"; calls that
// the driver lacks are absent), and the time from the start of a write's call until the host sees
// the word ("seen"), in registered pages of a memfd.
Measured ProbeMarks(ProbeTime time);

// Two processes on one GPU. The parent creates this, zeroed, in memory that both map.
struct Pair {
  std::atomic<std::uint32_t> ready;    // Processes that have their context and kernels.
  std::atomic<std::uint32_t> turn;     // The side that may launch now, 0 or 1.
  std::atomic<std::uint32_t> is_over;  // Side 0 has measured enough.
};

// "kernel", "null": launch to end of a kernel of 20 us and of an empty one, p50, on an otherwise
// idle GPU. "mps": 1 for a client of MPS.
Measured ProbeAlone(ProbeTime time);
// The two sides alternate kernels of 20 us; side 0 measures its own, launch to end: "p50", "p99".
Measured ProbeTurns(ProbeTime time, Pair& pair, unsigned side);
// Side 1 keeps the GPU full with kernels of 20 us; side 0 launches empty ones.
Measured ProbeBeside(ProbeTime time, Pair& pair, unsigned side);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_GPU_GATE_PROBES_H_
