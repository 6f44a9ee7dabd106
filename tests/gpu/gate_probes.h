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

// Measures launches of an empty kernel, as means of batches. "p50": through the library that the
// loader finds; "native p50": through the driver to which that library forwards, alternating;
// "library": the file that provides the cuLaunchKernel of "p50".
Measured ProbeLaunches(ProbeTime time);

// Measures the time per call ("write", "record", "query", "is capturing"; calls that the driver
// lacks are absent), and the time from the start of a write's call until the host can read the word
// ("seen"), in registered pages of a memfd.
Measured ProbeMarks(ProbeTime time);

// Two processes on one GPU. The parent creates this, zeroed, in memory that both map.
struct Pair {
  std::atomic<std::uint32_t> ready;    // Processes that have their context and kernels.
  std::atomic<std::uint32_t> turn;     // The side that may launch now, 0 or 1.
  std::atomic<std::uint32_t> is_over;  // Set by side 0 when it has measured enough.
};

// Measures the p50 from launch to end on an otherwise idle GPU: "kernel" of 20 us, and "null", an
// empty one. "mps" is 1 for a client of MPS.
Measured ProbeAlone(ProbeTime time);
// The two sides launch kernels of 20 us in turn. Side 0 measures its own from launch to end: "p50",
// "p99".
Measured ProbeTurns(ProbeTime time, Pair& pair, unsigned side);
// Side 1 keeps the GPU full with kernels of 20 us; side 0 launches empty ones.
Measured ProbeBeside(ProbeTime time, Pair& pair, unsigned side);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_GPU_GATE_PROBES_H_
