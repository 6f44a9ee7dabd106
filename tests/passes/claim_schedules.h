// SPDX-License-Identifier: Apache-2.0
// Runs the preemptible form of a kernel like a GPU under random schedules: launches of capped
// grids, several processors at once, stops while blocks run, and resumption from the counter.

#ifndef GPUSHARED_TESTS_PASSES_CLAIM_SCHEDULES_H_
#define GPUSHARED_TESTS_PASSES_CLAIM_SCHEDULES_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gpushared/result.h"

#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/executor/program.h"
#include "server/ptx/passes/claim.h"

namespace gpushared::testing {

namespace executor = device::executor;

// A module after the claim pass, printed and parsed again, and decoded together with its original.
class ClaimedModule {
 public:
  // `variables_base` as for DecodeModule: both forms use the same variables.
  static Result<std::unique_ptr<ClaimedModule>> Make(
      const ptx::Module& module, const executor::ModuleLayout& layout, std::uint64_t variables_base,
      executor::Flavour flavour = executor::BestFlavour());

  // Returns null if the kernel does not exist, or has no preemptible form.
  const ptx::PreemptibleKernel* Find(std::string_view kernel) const;
  const executor::Program& Original(const ptx::PreemptibleKernel& kernel) const;
  const executor::Program& Claimed(const ptx::PreemptibleKernel& kernel) const;
  const std::vector<ptx::PreemptibleKernel>& kernels() const { return kernels_; }

 private:
  std::vector<ptx::PreemptibleKernel> kernels_;
  std::unique_ptr<executor::ModuleImage> image_;
};

// A launch by the client.
struct PreemptibleLaunch {
  const executor::Program* original = nullptr;
  const executor::Program* claimed = nullptr;
  std::uint32_t parameter_offset = 0;
  device::Dim3 grid, block;
  std::uint32_t dynamic_shared_bytes = 0;
  std::vector<std::byte> parameters;  // Those that the client passes.
  // ScheduleRunner replaces this window's range of module variables by the claim words, so the
  // kernel's variables must be elsewhere in the window.
  executor::MemoryWindow memory;
  std::span<std::byte> bytes;  // The compared memory: all that the kernel may write.
};

// Threads that run blocks together; they live as long as the object.
class Crew {
 public:
  explicit Crew(std::uint32_t threads);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  std::uint32_t size() const { return static_cast<std::uint32_t>(executors_.size()); }
  // Calls work(executor) on `threads` threads, including the calling one; returns when all have
  // finished.
  void Run(std::uint32_t threads, const std::function<void(executor::BlockExecutor&)>& work);

 private:
  void Live(std::uint32_t index);

  std::vector<std::unique_ptr<executor::BlockExecutor>> executors_;
  std::mutex mutex_;  // Protects everything below.
  std::condition_variable changed_;
  const std::function<void(executor::BlockExecutor&)>* work_ = nullptr;
  std::uint64_t round_ = 0;
  std::uint32_t wanted_ = 0;
  std::uint32_t running_ = 0;
  bool is_closed_ = false;
  std::vector<std::thread> threads_;
};

// Returns the number of random schedules for each kernel: the value of GPUSHARED_SCHEDULES, which
// is 1,000 in the stage `long`. The default is 250, or 100 under the address sanitizer, because
// schedules take ten times as long there.
std::uint32_t Schedules();

class ScheduleRunner {
 public:
  explicit ScheduleRunner(std::uint32_t threads) : crew_(threads) {}

  // Runs the original once, and the preemptible form under `count` schedules that `seed` determines
  // (except for the timing of threads), each from the same initial memory. Leaves the memory as
  // after the original. Returns the error, or "".
  std::string Run(const PreemptibleLaunch& launch, std::uint32_t count, std::uint64_t seed);

  // Totals since the runner was created.
  std::uint64_t schedules() const { return schedules_; }
  std::uint64_t launches() const { return launches_; }
  // Launches that were stopped before all of their blocks had begun.
  std::uint64_t stops() const { return stops_; }

 private:
  // The claim words, in separate cache lines as on a device.
  struct Control {
    alignas(64) std::uint32_t counter = 0;
    alignas(64) std::uint32_t stop = 0;
  };
  // One of the launches on the device that together execute a launch by the client.
  struct Part {
    std::uint32_t blocks = 0;   // Blocks launched, which may exceed the number of remaining blocks.
    std::uint32_t stop_at = 0;  // The stop word is written once this many are claimed.
    std::uint32_t threads = 1;
    std::uint32_t epoch = 0;
  };

  std::string RunSchedule(const PreemptibleLaunch& launch, std::uint64_t seed);
  std::string RunPart(const PreemptibleLaunch& launch, const Part& part, std::uint32_t before);
  std::uint32_t Claimed() const;

  Crew crew_;
  Control control_;
  std::uint64_t schedules_ = 0, launches_ = 0, stops_ = 0;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_PASSES_CLAIM_SCHEDULES_H_
