// SPDX-License-Identifier: Apache-2.0
// A CUDA runtime for tests: just enough of the runtime's C interface (runtime_calls.cpp) to link
// programs compiled by nvcc, including their host code. It passes every kernel that they launch to
// a backend, and needs neither a driver nor a GPU.
//
// Device memory is one range of this process, so device pointers are host pointers.
// Single-threaded; calls of the programs are synchronous.

#ifndef GPUSHARED_TESTS_CORPUS_RUNTIME_H_
#define GPUSHARED_TESTS_CORPUS_RUNTIME_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

#include "common/ptx/text/module.h"
#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/executor/program.h"
#include "server/device/reach.h"

namespace gpushared::corpus {

namespace executor = device::executor;

// The PTX of one .cu file, parsed and decoded.
struct LoadedModule {
  std::string text;
  ptx::Module module;
  executor::ModuleLayout layout;
  std::uint64_t variables_base = 0;  // Inside the memory range.
  std::unique_ptr<executor::ModuleImage> image;
};

struct KernelLaunch {
  const LoadedModule* module = nullptr;
  const executor::Program* program = nullptr;  // Of module->image; may be unsupported.
  device::Dim3 grid, block;
  std::uint32_t dynamic_shared_bytes = 0;
  bool is_cooperative = false;
  std::vector<std::byte> parameters;  // program->info().parameter_bytes bytes.
};

// Runs the launches of programs. It may run a launch many times, provided that it leaves device
// memory as one run of the original kernel would.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Status Run(const KernelLaunch& launch) = 0;
};

// The launches of one kernel since the process began.
struct KernelHistory {
  std::uint64_t launches = 0;
  std::string rejection;  // Why the kernel cannot run; empty if it can.
};

class Runtime {
 public:
  static constexpr std::uint64_t kMemoryBytes = std::uint64_t{256} << 20;

  // Returns the instance for this process' cuda... calls.
  static Runtime& Instance();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Null: a BlockExecutor runs each launch once, unmodified. Borrowed.
  void SetBackend(Backend* backend) { backend_ = backend; }

  // All linked modules, in no particular order.
  const std::vector<std::unique_ptr<LoadedModule>>& modules() const { return modules_; }
  const std::map<std::string, KernelHistory>& history() const { return history_; }

  // Drops all device memory and errors, and re-initialises variables.
  void Reset();
  // The first error since Reset; empty if there was none.
  const std::string& error() const { return error_; }

  // Device memory in use, module variables included.
  std::span<std::byte> used_memory() { return {memory_, static_cast<std::size_t>(used_)}; }
  executor::MemoryWindow window() const { return {Base(), &mapped_bytes_, 0, 0}; }
  executor::BlockExecutor& block_executor() { return executor_; }
  // Runs a launch unmodified. If its kernel's access set is known, the launch can access only the
  // allocations that the parameters in the access set point to, and variables of its module.
  Status RunPlain(const KernelLaunch& launch);
  // Launches that were restricted this way, since the process began.
  std::uint64_t bound_launches() const { return bound_launches_; }

  // For runtime_calls.cpp. Return null, or record an error, if something is unknown.
  LoadedModule* Register(const void* fatbin_wrapper);
  void RegisterFunction(LoadedModule* module, const void* host_function, const char* name);
  void RegisterVariable(LoadedModule* module, const void* host_variable, const char* name);
  const LoadedModule* GetModule(const void* host_function) const;
  const executor::Program* FindFunction(const void* host_function) const;
  void* FindVariable(const void* host_variable, std::uint64_t* bytes) const;
  void* Allocate(std::uint64_t bytes);
  bool Launch(const void* host_function, device::Dim3 grid, device::Dim3 block, void** arguments,
              std::uint64_t shared_bytes, bool is_cooperative);
  void RecordError(const std::string& error);

 private:
  Runtime();
  ~Runtime();
  std::uint64_t Base() const { return reinterpret_cast<std::uint64_t>(memory_); }
  // Returns all memory if the access set is unknown.
  device::Reach GetReach(const KernelLaunch& launch) const;

  struct Function {
    LoadedModule* module = nullptr;
    std::string name;
  };
  struct Variable {
    const LoadedModule* module = nullptr;
    std::string name;
  };

  void* reserved_ = nullptr;
  // Aligned to its size, so that addresses differ only in their low words.
  std::byte* memory_ = nullptr;
  std::atomic<std::uint64_t> mapped_bytes_ = kMemoryBytes;
  std::uint64_t used_ = 0;
  std::uint64_t variables_end_ = 0;               // The state that Reset() restores.
  std::vector<device::MemoryPiece> allocations_;  // By address.
  std::uint64_t bound_launches_ = 0;
  std::vector<std::unique_ptr<LoadedModule>> modules_;
  std::map<const void*, Function> functions_;
  std::map<const void*, Variable> variables_;
  std::map<std::string, KernelHistory> history_;
  executor::BlockExecutor executor_;
  Backend* backend_ = nullptr;
  std::string error_;
};

}  // namespace gpushared::corpus

#endif  // GPUSHARED_TESTS_CORPUS_RUNTIME_H_
