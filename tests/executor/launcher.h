// SPDX-License-Identifier: Apache-2.0
// Runs kernels on an executor inside one process, without server or device: the client's memory is
// an ordinary allocation, and parameters are packed as in a CUDA launch.

#ifndef GPUSHARED_TESTS_EXECUTOR_LAUNCHER_H_
#define GPUSHARED_TESTS_EXECUTOR_LAUNCHER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/executor/code.h"
#include "server/device/cpu/executor/device_heap.h"
#include "server/device/cpu/executor/program.h"
#include "server/device/reach.h"

namespace gpushared::testing {

namespace executor = device::executor;

// A client's memory, module and executor. Allocates upwards and never frees.
class Launcher {
 public:
  explicit Launcher(std::uint64_t memory_bytes = std::uint64_t{16} << 20,
                    executor::Flavour flavour = executor::BestFlavour());

  // Parses, places and decodes; throws std::runtime_error with the reason.
  void Load(std::string_view ptx_text);
  void LoadFile(const std::string& path);

  template <typename T>
  T* Allocate(std::size_t count) {
    return static_cast<T*>(AllocateBytes(count * sizeof(T)));
  }
  void* AllocateBytes(std::size_t bytes);
  // Kernels of the next runs allocate from this heap, which is outside the client's other memory.
  executor::DeviceHeap& MakeHeap(std::uint64_t bytes);
  std::uint64_t base() const { return reinterpret_cast<std::uint64_t>(memory_); }
  std::uint64_t mapped_bytes() const { return mapped_bytes_.load(); }

  const executor::Program& Kernel(std::string_view name) const;

  // Accepts any kernel parameters, and places each at its natural alignment.
  template <typename... Parameters>
  executor::RunOutcome Run(std::string_view kernel, device::Dim3 grid, device::Dim3 block,
                           Parameters... parameters) {
    std::vector<std::byte> packed;
    (Append(&packed, parameters), ...);
    return RunPacked(kernel, grid, block, packed);
  }
  executor::RunOutcome RunPacked(std::string_view kernel, device::Dim3 grid, device::Dim3 block,
                                 std::vector<std::byte> parameters);

  executor::BlockExecutor& executor() { return executor_; }
  // The last run's counts.
  const executor::ExecutionCounts& counts() const { return counts_; }
  std::string printed;  // Everything printed by kernels so far.

  // Settings for the next runs.
  bool count_instructions = false;
  std::uint32_t dynamic_shared_bytes = 0;
  bool is_cooperative = false;
  std::uint64_t first_block = 0;
  std::uint64_t block_count = 0;  // All blocks to the end if 0.
  std::function<std::optional<std::uint64_t>(bool while_waiting)> more_blocks;
  std::function<void()> on_print;
  executor::LaunchState* state = nullptr;
  std::chrono::nanoseconds stall_limit = executor::kStallLimit;
  std::atomic<bool> stop = false;
  std::atomic<bool> kill = false;
  // Pauses runs at every poll, and resumes them with everything that they borrow at other
  // addresses. Also set by GPUSHARED_PAUSE_ALWAYS, for all runs of a program.
  bool pause_always = false;
  std::uint64_t pauses = 0;  // Total over all runs.
  // The access set of the run, followed by its access sets after each pause; the last entry remains
  // in effect. If this is empty, the run may access all memory of its client.
  std::vector<device::Reach> reaches;
  // Used in place of `kill` by kernels that set the word themselves.
  const std::atomic<bool>* kill_word = nullptr;

 private:
  template <typename T>
  static void Append(std::vector<std::byte>* packed, T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t at = (packed->size() + alignof(T) - 1) / alignof(T) * alignof(T);
    packed->resize(at + sizeof(T));
    std::memcpy(packed->data() + at, &value, sizeof(T));
  }

  const device::Reach* ReachAfter(std::size_t pauses_of_run) const;
  executor::RunOutcome RunPaused(executor::Launch launch, std::uint64_t count,
                                 const std::atomic<bool>& killed);

  executor::Flavour flavour_;
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  // Zeroed memory that the system allocates page by page, because most launchers touch few pages.
  std::unique_ptr<std::byte[], Free> storage_;
  std::byte* memory_ = nullptr;
  std::atomic<std::uint64_t> mapped_bytes_;
  std::uint64_t used_ = 0;
  std::unique_ptr<std::byte[]> heap_storage_;
  executor::MemoryPiece heap_piece_;
  std::unique_ptr<executor::DeviceHeap> heap_;
  std::unique_ptr<executor::ModuleImage> image_;
  std::uint64_t variables_at_ = 0;
  std::uint64_t variables_bytes_ = 0;
  executor::BlockExecutor executor_;
  executor::ExecutionCounts counts_;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_EXECUTOR_LAUNCHER_H_
