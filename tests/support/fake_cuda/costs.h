// SPDX-License-Identifier: Apache-2.0
// Durations of the operations of a real driver and GPU. The fake driver and GPU take these times if
// a test enables costs.
//
// `gpu_facts --costs FILE` measures most of them on a GPU; its output can replace the defaults
// here.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_COSTS_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_COSTS_H_

#include <cstdint>
#include <string_view>

namespace gpushared::testing::fake_cuda {

// In ns, for a Hopper GPU on PCIe 5. Sources:
//   [h100]   Measured with driver 580.159.04: tests/gpu/results/2026-11-27-h100.costs, or the
//            quoted row of 2026-11-27-h100.tsv in the same directory.
//   [sim]    `GpuCosts` of scheduler/sim, which has them from the publications named there.
//   [events] coreylowman/cudarc, pull request 335: an event that a stream waits for takes about
//            1 µs, with PCIe 1 to 2 µs more.
//   [torch]  pytorch/pytorch, pull request 86509: a program uses 287,047,680 bytes of GPU memory if
//            each kernel is loaded at its first use, and 666,632,192 if all kernels are loaded.
//   [guess]  No measurement is published. Estimated from the steps that the operation consists of.
struct Costs {
  // ---- time of the calling thread, which holds the context's lock meanwhile
  std::uint64_t call_launch = 3'180;     // [h100]
  std::uint64_t call_copy = 1'264;       // [h100]
  std::uint64_t call_fill = 808;         // [h100]
  std::uint64_t call_record = 135;       // [h100] An untimed event.
  std::uint64_t call_write = 834;        // [h100]
  std::uint64_t call_query = 730;        // [h100]
  std::uint64_t call_elapsed = 1'500;    // [h100]
  std::uint64_t call_fits = 1'500;       // [guess] The driver computes the occupancy each time.
  std::uint64_t call_load = 68'057;      // [h100] "loading a module, p50"; without its kernels.
  std::uint64_t call_unload = 5'056;     // [h100] "unloading it, p50"
  std::uint64_t call_allocate = 71'000;  // [h100] "cuMemAlloc of 16 MiB", alone.
  std::uint64_t call_free = 45'000;      // [h100] "cuMemFree of 16 MiB", alone.
  std::uint64_t call_create = 8'123;     // [h100] Physical memory.
  std::uint64_t call_map = 677;          // [h100]
  std::uint64_t call_access = 20'813;    // [h100]
  std::uint64_t call_unmap = 14'704;     // [h100]
  std::uint64_t call_release = 11'446;   // [h100]
  std::uint64_t call_other = 100;        // [guess]
  // Added to the load of a text that was never compiled before. [guess] Estimated from the row "p99
  // of serve beside it" of the part churn, 18.3 ms, where such a text is loaded every 0.2 s. The
  // row "cuModuleLoadDataEx of PTX that is new" of gpu_facts would measure it.
  std::uint64_t compile_text = 18'000'000;
  // Pinned host memory: the time of a call, and the additional time for each MiB. [h100] The line
  // through 1 MiB and 256 MiB of "registering" and "taking the registration back". For 16 MiB this
  // line yields 835 µs, and the rows state 514 to 921 µs. Allocating takes longer per MiB, because
  // the driver first obtains the pages: [h100] "cuMemHostAlloc of 16 MiB", alone.
  std::uint64_t call_register = 203'000;
  std::uint64_t register_mebibyte = 39'500;
  std::uint64_t call_unregister = 92'000;
  std::uint64_t unregister_mebibyte = 15'400;
  std::uint64_t host_alloc_mebibyte = 286'000;
  // Time and memory for each kernel whose code is loaded, with its module or alone.
  std::uint64_t kernel_load = 12'044;        // [h100]
  std::uint64_t kernel_code_bytes = 32'768;  // [guess] [torch]: 380 MB for a library's kernels.
  // Time of a launch of an instantiated graph, and additional time for each of its nodes. The time
  // per node is short, because instantiation and parameter updates have done the rest.
  std::uint64_t call_graph_launch = 1'556;        // [h100]
  std::uint64_t graph_launched_node = 43;         // [h100]
  std::uint64_t call_graph_node = 6'911;          // [h100] Changing a kernel's parameters.
  std::uint64_t graph_instantiated_node = 3'825;  // [h100]

  // ---- latency of submitted work
  std::uint64_t launch_delay = 4'000;  // [sim] From the end of a call to the start on an idle GPU.
  // [events] Time until the host can read a word that the GPU has written.
  std::uint64_t notice = 1'000;
  std::uint64_t wake = 16'172;  // [h100] The wake-up of a thread by the GPU's interrupt.

  // ---- idle time between two kernels of a stream: kernel_gap or graph_gap, plus the others
  std::uint64_t kernel_gap = 2'033;      // [h100]
  std::uint64_t graph_gap = 845;         // [h100] In place of kernel_gap, within a graph.
  std::uint64_t untimed_event = 3;       // [h100]
  std::uint64_t timed_event = 1'902;     // [h100]
  std::uint64_t write_value = 2'002;     // [h100]
  std::uint64_t engine_switch = 4'288;   // [h100] To a copy engine, and again back from it.
  std::uint64_t copy_latency = 57;       // [h100] Added by a second copy of 32 bytes.
  std::uint64_t fill_kernel = 0;         // [h100] Nothing beyond the kernel_gap before it.
  std::uint64_t host_function = 40'588;  // [h100] A thread of the driver wakes up.

  // ---- time of blocks and bytes
  //
  // Time of each instruction of a block's warp. Claiming a block takes about 25 instructions, hence
  // 0.5 µs, about as long as two consecutive accesses to the L2 cache.
  std::uint64_t instruction = 20;
  std::uint64_t block_start = 1;                  // [guess] Blocks begin one after the other.
  std::uint64_t host_bytes_per_us = 52'491;       // [h100]
  std::uint64_t device_bytes_per_us = 3'231'722;  // [h100] Measured by zeroing memory.

  // Returns the cost of that name; null if it does not exist.
  std::uint64_t* Named(std::string_view name);
  // Return the cost of a call by its name, and the additional cost of its bytes.
  std::uint64_t OfCall(std::string_view call) const;
  std::uint64_t OfBytes(std::string_view call, std::uint64_t bytes) const;
};

}  // namespace gpushared::testing::fake_cuda

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_COSTS_H_
