// SPDX-License-Identifier: Apache-2.0
// A module made ready for execution: its kernels decoded to micro-ops, and the plan
// of the memory that its .global and .const variables need inside the client's range.

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

// The executor presents itself as this, in the numbers of sm_XX.
inline constexpr std::uint32_t kComputeCapability = 80;
// It has instructions of later ones, and runs texts for architectures up to this one.
inline constexpr std::uint32_t kNewestArchitecture = 90;
// No architecture has more; the executor's frames may.
inline constexpr std::uint32_t kRegistersPerThreadMax = 255;

// The area that variables need in the client's range; MemoryWindow::variables_base is its start.
using ptx::kModuleVariableBytesMax;
using ptx::LayOutModule;
using ptx::ModuleLayout;
using ptx::VariablePlacement;

// The compilation of the executor's operations that a program is bound to.
enum class Flavour : std::uint8_t {
  kBaseline,  // Any x86-64.
  kV3,        // x86-64-v3: AVX2, FMA, F16C.
};

// The fastest flavour this machine can execute.
Flavour BestFlavour();
// Whether its operations are in this program, which may have been built for one machine alone.
bool HasFlavour(Flavour flavour);

struct Code;  // code.h

// One kernel ready to run, or the list of reasons why it cannot.
//
// Immutable after decoding; any number of executors on any threads may run it.
class Program {
 public:
  Program(KernelInfo info, std::unique_ptr<const Code> code);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // `unsupported` names every missing instruction with its PTX line; such a program
  // must not be run.
  const KernelInfo& info() const { return info_; }
  const Code& code() const { return *code_; }
  // Whether it calls malloc: a launch should have a heap.
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

// Statements that are decoded for the kernels of one module, those of functions for each kernel
// that may call them; beyond that kLimitExceeded. A decoded one takes about 130 bytes. Four times
// what a text can have.
inline constexpr std::size_t kDecodedStatementsMax = std::size_t{1} << 22;

// Decodes every kernel. `variables_base` is the device address at which the caller
// placed layout.InitialBytes(variables_base). Kernels that use instructions or symbols
// the executor lacks still decode, with KernelInfo::unsupported set. Fails with
// kInvalidArgument (line named) for malformed code: undefined labels, names declared
// twice; and with kLimitExceeded.
Result<std::unique_ptr<ModuleImage>> DecodeModule(const ptx::Module& module,
                                                  const ModuleLayout& layout,
                                                  std::uint64_t variables_base,
                                                  Flavour flavour = BestFlavour());

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PROGRAM_H_
