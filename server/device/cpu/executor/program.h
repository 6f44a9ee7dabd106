// SPDX-License-Identifier: Apache-2.0
// A module prepared for execution: its kernels decoded to micro-ops, and the layout of its .global
// and .const variables inside the client's range.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PROGRAM_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpushared/result.h"

#include "common/ptx/text/module.h"
#include "server/device/device.h"
#include "server/ptx/analysis/variable_layout.h"

namespace gpushared::device::executor {

// Compute capability that the executor reports, as the number in sm_XX.
inline constexpr std::uint32_t kComputeCapability = 80;
// The executor also supports instructions of later architectures, and runs PTX for architectures up
// to this one.
inline constexpr std::uint32_t kNewestArchitecture = 90;
// Limit of all architectures. The executor's frames may hold more registers.
inline constexpr std::uint32_t kRegistersPerThreadMax = 255;

// Limit of a module's area of variables, which starts at MemoryWindow::variables_base in the
// client's range.
using ptx::kModuleVariableBytesMax;
using ptx::LayOutModule;
using ptx::ModuleLayout;
using ptx::VariablePlacement;

// Compiled variant of the executor's operations that a program is bound to.
enum class Flavour : std::uint8_t {
  kBaseline,  // Runs on any x86-64.
  kV3,        // Requires x86-64-v3 (AVX2, FMA, F16C).
};

// Returns the fastest flavour for this machine.
Flavour BestFlavour();
// Returns whether this program contains the operations of the flavour. It may lack some if it was
// built for one machine only.
bool HasFlavour(Flavour flavour);

struct Code;  // Declared in code.h.

// A kernel that is ready to run, or the list of reasons why it cannot.
//
// Immutable after decoding; any number of executors on any threads may run it.
class Program {
 public:
  Program(KernelInfo info, std::unique_ptr<const Code> code);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // `unsupported` lists unsupported features with their PTX lines; a program with a non-empty list
  // must not be run.
  const KernelInfo& info() const { return info_; }
  const Code& code() const { return *code_; }
  // Returns whether the kernel calls malloc, so that a launch needs a heap.
  bool allocates() const;

 private:
  KernelInfo info_;
  std::unique_ptr<const Code> code_;
};

// All kernels of a module, in source order.
class ModuleImage {
 public:
  explicit ModuleImage(std::vector<std::unique_ptr<const Program>> programs)
      : programs_(std::move(programs)) {}
  std::size_t size() const { return programs_.size(); }
  const Program& program(std::size_t index) const { return *programs_[index]; }

 private:
  std::vector<std::unique_ptr<const Program>> programs_;
};

// Limit of the decoded statements of a module, beyond which decoding fails with kLimitExceeded. It
// is four times ptx::kStatementsMax, because functions count once for each kernel that may call
// them. A decoded statement takes about 130 bytes.
inline constexpr std::size_t kDecodedStatementsMax = std::size_t{1} << 22;

// Decodes every kernel. `variables_base` is the device address at which the caller placed
// layout.InitialBytes(variables_base). Kernels with unsupported instructions or symbols are decoded
// as well, with KernelInfo::unsupported set. Fails with kInvalidArgument and the line for malformed
// code (undefined labels, duplicate names), and with kLimitExceeded beyond kDecodedStatementsMax.
Result<std::unique_ptr<ModuleImage>> DecodeModule(const ptx::Module& module,
                                                  const ModuleLayout& layout,
                                                  std::uint64_t variables_base,
                                                  Flavour flavour = BestFlavour());

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PROGRAM_H_
