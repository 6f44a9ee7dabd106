// SPDX-License-Identifier: Apache-2.0
// What a real driver and GPU would take: times that the fake ones spend when a test asks for it.
//
// None of these was measured by us. `gpu_facts --costs FILE` measures most of them on a GPU; what
// it writes is to replace them here.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_COSTS_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_COSTS_H_

#include <cstdint>
#include <string_view>

namespace gpushared::testing::fake_cuda {

// In ns, for a Hopper GPU on PCIe 5. Sources:
//   [sim]    `GpuCosts` of scheduler/sim, which has them from the publications named there.
//   [lithos] AureliusJustin/lithos-reproduction, A100: a null launch takes 2.10 to 2.22 µs of its
//            caller; an event behind each launch 4.1 to 5.1 µs, two calls and their waiting.
//   [graphs] NVIDIA blog "Getting Started with CUDA Graphs", V100: kernels of 2.9 µs that follow
//            each other in a stream take 3.8 µs each, so 0.9 µs lie between two.
//            As one graph they take 3.4 µs each.
//   [line]   NVIDIA blog "Constant Time Launch for Straight-Line CUDA Graphs", CUDA 12.6: 2.5 µs
//            and about 1 ns for each node.
//   [events] coreylowman/cudarc, pull request 335: an event that a stream waits for takes about
//            1 µs, with PCIe 1 to 2 µs more.
//   [torch]  pytorch/pytorch, pull request 86509: a program has 287,047,680 bytes of GPU memory
//            where kernels are loaded when they are used, and 666,632,192 where all are.
//   [vmm]    ovg-project/kvcached, benchmarks/bench_vmm, A100: averages over 4,096 pages of 2 MiB.
//   [guess]  Nobody has published it. The order of magnitude follows from what it consists of.
struct Costs {
  // ---- of the calling thread, which holds the context's lock meanwhile
  std::uint64_t call_launch = 2'100;    // [lithos]
  std::uint64_t call_copy = 2'100;      // [guess] As a launch.
  std::uint64_t call_fill = 2'100;      // [guess] It launches a kernel.
  std::uint64_t call_record = 1'000;    // [guess] A method into the same buffer as a launch.
  std::uint64_t call_write = 1'000;     // [guess] As a record.
  std::uint64_t call_query = 300;       // [guess] A lock and a word in host memory.
  std::uint64_t call_elapsed = 300;     // [guess] As a query.
  std::uint64_t call_fits = 1'500;      // [guess] Occupancy, which it computes each time.
  std::uint64_t call_slow = 300'000;    // [guess] Module loads, registering, allocating.
  std::uint64_t call_create = 193'000;  // [vmm] Physical memory.
  std::uint64_t call_map = 1'500;       // [vmm]
  std::uint64_t call_access = 36'000;   // [vmm]
  std::uint64_t call_unmap = 26'000;    // [vmm]
  std::uint64_t call_release = 26'000;  // [guess] As unmapping.
  std::uint64_t call_other = 100;       // [guess]
  // For each kernel whose code is loaded, with its module or alone: time, and memory.
  std::uint64_t kernel_load = 30'000;        // [guess] An upload and its wait.
  std::uint64_t kernel_code_bytes = 32'768;  // [guess] [torch] is 380 MB for all of a library's.
  // A launch of an instantiated graph, and of each of its nodes. Instantiation and new parameters
  // have paid for the rest.
  std::uint64_t call_graph_launch = 2'500;        // [line]
  std::uint64_t graph_launched_node = 1;          // [line]
  std::uint64_t call_graph_node = 500;            // [guess] Copies parameters, checks them.
  std::uint64_t graph_instantiated_node = 1'500;  // [guess] A command of the GPU for each.

  // ---- of work on its way
  std::uint64_t launch_delay = 4'000;  // [sim] From the end of a call to the start on an idle GPU.
  std::uint64_t notice = 1'000;        // [events] A word from the GPU to host memory, and its look.
  std::uint64_t wake = 20'000;         // [guess] A thread that sleeps until the GPU's interrupt.

  // ---- between two kernels of a stream; all of these lie on top of kernel_gap
  std::uint64_t kernel_gap = 1'000;      // [sim], [graphs]
  std::uint64_t graph_gap = 500;         // [graphs] In place of kernel_gap, inside of a graph.
  std::uint64_t untimed_event = 500;     // [guess] A release of a word, without a time stamp.
  std::uint64_t timed_event = 1'000;     // [events] It waits for the kernel, and stamps.
  std::uint64_t write_value = 1'000;     // [guess] It has a barrier of the system, as an event.
  std::uint64_t engine_switch = 2'000;   // [guess] To a copy engine, and the same back: semaphores.
  std::uint64_t copy_latency = 1'500;    // [guess] One round trip over PCIe.
  std::uint64_t fill_kernel = 1'500;     // [guess] A kernel that does next to nothing.
  std::uint64_t host_function = 20'000;  // [guess] A thread of the driver wakes up.

  // ---- of blocks and bytes
  // For each instruction of a block's warp. So the claim of a block, about 25 instructions, takes
  // 0.5 µs. Two accesses to the L2 cache, one after the other, would take about as long.
  std::uint64_t instruction = 20;
  std::uint64_t block_start = 1;             // [guess] Blocks begin one after the other.
  std::uint64_t host_bytes_per_us = 55'000;  // PCIe 5 x16 gives 50 to 55 GB/s of its 63.
  std::uint64_t device_bytes_per_us =
      3'000'000;  // HBM3e of an H200 has 4.8 TB/s in both directions.

  // The one of that name; null when there is none.
  std::uint64_t* Named(std::string_view name);
  // The cost of a call, by its name.
  std::uint64_t OfCall(std::string_view call) const;
};

}  // namespace gpushared::testing::fake_cuda

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_COSTS_H_
