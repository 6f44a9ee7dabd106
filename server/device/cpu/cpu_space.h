// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_CPU_SPACE_H_
#define GPUSHARED_SERVER_DEVICE_CPU_CPU_SPACE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpushared/result.h"

#include "server/device/cpu/address_range.h"
#include "server/device/cpu/cpu_prepared.h"
#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/executor/program.h"
#include "server/device/cpu/space_heap.h"
#include "server/device/device.h"

namespace gpushared::device {

// Memory for the kernels of one space, shared by its modules. Accessed by any thread.
struct SpaceKernelMemory {
  explicit SpaceKernelMemory(AddressRange& range) : heap(range) {}

  // Accessed relaxed, because a launch may use either the old or the new value.
  std::atomic<std::uint64_t> stack_bytes = executor::kRecursionLocalBytes;
  std::atomic<std::uint64_t> printed_bytes = kOutputBytesMax;
  SpaceHeap heap;
};

// A loaded module with its own instance of every module variable.
//
// Immutable; thread-safe. Uses the memory and the heap of its space, which must outlive it.
class CpuModule : public Module {
 public:
  // Places the module in `range` with initialized variables, at `address` unless it is 0. Fails
  // with kOutOfMemory if the range or the client's quota does not suffice for the variables and the
  // code.
  static Result<std::shared_ptr<const Module>> Place(std::shared_ptr<const CpuPrepared> prepared,
                                                     AddressRange& range,
                                                     SpaceKernelMemory& kernel_memory,
                                                     std::uint64_t address = 0);
  CpuModule(const CpuModule&) = delete;
  CpuModule& operator=(const CpuModule&) = delete;
  ~CpuModule() override;

  std::span<const KernelInfo> kernels() const override {
    return kernels_.empty() ? prepared_->kernel_infos() : kernels_;
  }
  std::span<const VariableInfo> variables() const override { return variable_infos_; }
  std::span<const MemoryPiece> variable_memory() const override { return variable_memory_; }
  MemoryPiece block() const override {
    return {.base = variables_.address, .bytes = variables_.bytes};
  }
  const executor::Program& program(std::uint32_t number) const {
    return *prepared_->programs()[number];
  }
  // Returns the memory that the module's kernels may access: the client's mapped memory, the
  // variables of this module, and `further`. The latter holds the variables of all modules of the
  // client, its mapped chunks and its heap, and must outlive the window.
  executor::MemoryWindow window(const MemoryPieces::List& further) const;
  // Returns the current value for `further`.
  std::shared_ptr<const MemoryPieces::List> further() const { return range_.pieces().Now(); }
  SpaceKernelMemory& kernel_memory() const { return kernel_memory_; }

 private:
  CpuModule(std::shared_ptr<const CpuPrepared> prepared, AddressRange& range,
            SpaceKernelMemory& kernel_memory, const AddressRange::Block& variables)
      : prepared_(std::move(prepared)),
        range_(range),
        kernel_memory_(kernel_memory),
        variables_(variables) {}
  // Creates the heap if a kernel allocates. If that fails, marks the kernels that allocate as
  // unsupported in kernels_.
  void MakeHeap();
  // Places the variables and writes their initial contents.
  void WriteVariables();

  const std::shared_ptr<const CpuPrepared> prepared_;  // May be shared with other modules.
  AddressRange& range_;
  SpaceKernelMemory& kernel_memory_;
  const AddressRange::Block variables_;
  std::vector<KernelInfo> kernels_;  // If empty, those of prepared_ apply.
  std::vector<VariableInfo> variable_infos_;
  std::vector<MemoryPiece> variable_memory_;
};

// Space of the cpu device. Device addresses are addresses of this process.
class CpuSpace : public Space {
 public:
  explicit CpuSpace(std::unique_ptr<AddressRange> range)
      : range_(std::move(range)),
        kernel_memory_(*range_),
        recipe_{.form = ModuleRecipe::Form::kDecoded} {}
  CpuSpace(const CpuSpace&) = delete;
  CpuSpace& operator=(const CpuSpace&) = delete;
  ~CpuSpace() override = default;

  std::uint64_t base() const override { return range_->base(); }
  std::uint64_t range_bytes() const override { return range_->bytes(); }
  Result<std::uint64_t> Resize(std::uint64_t mapped_bytes) override {
    return range_->Resize(mapped_bytes);
  }
  MemoryPiece mapping_area() const override { return range_->mapping_area(); }
  Result<std::unique_ptr<Chunk>> MakeChunk(std::uint64_t bytes) override;
  Status MapChunk(Chunk& chunk, std::uint64_t address) override;
  void HideMapping(std::uint64_t address) override { range_->HideMapping(address); }
  Status Unmap(std::uint64_t address, std::uint64_t bytes) override {
    return range_->Unmap(address, bytes);
  }
  Status SwapPageOut(std::uint64_t offset) override { return range_->SwapPageOut(offset); }
  Status SwapPageIn(std::uint64_t offset) override { return range_->SwapPageIn(offset); }
  std::uint64_t NonResidentBytes(std::uint64_t address, std::uint64_t bytes) const override {
    return range_->NonResidentBytes(address, bytes);
  }
  SpaceUse use() override { return range_->use(); }
  Status SetKernelMemory(const KernelMemory& memory) override;
  const ModuleRecipe& recipe() const override { return recipe_; }
  Result<std::shared_ptr<const Module>> PlaceModule(
      std::shared_ptr<const PreparedModule> module) override;
  Status CheckMove() const override;
  Result<std::shared_ptr<const Module>> PlaceModuleAt(std::shared_ptr<const PreparedModule> module,
                                                      std::uint64_t address) override;
  KernelMemory kernel_memory() const override;
  Status Save(const MemoryPiece& part, int file) override { return range_->Save(part, file); }
  Status Load(const MemoryPiece& part, int file) override { return range_->Load(part, file); }
  const AddressRange& range() const { return *range_; }

 private:
  const std::unique_ptr<AddressRange> range_;
  SpaceKernelMemory kernel_memory_;
  const ModuleRecipe recipe_;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_CPU_SPACE_H_
