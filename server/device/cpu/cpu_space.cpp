// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/cpu_space.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "server/device/prepare.h"

namespace gpushared::device {

namespace {

void WriteAt(std::uint64_t address, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  std::memcpy(reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)), bytes.data(),
              bytes.size());
}

}  // namespace

Result<std::shared_ptr<const Module>> CpuModule::Place(std::shared_ptr<const CpuPrepared> prepared,
                                                       AddressRange& range,
                                                       SpaceKernelMemory& kernel_memory,
                                                       std::uint64_t address) {
  Result<AddressRange::Block> block =
      address == 0 || prepared->variable_bytes() == 0
          ? range.TakeModuleBlock(prepared->variable_bytes(), prepared->bytes())
          : range.TakeModuleBlockAt(address, prepared->variable_bytes(), prepared->bytes());
  if (!block) return block.status();
  // From here on the module's destructor returns the block.
  std::shared_ptr<CpuModule> module(
      new CpuModule(std::move(prepared), range, kernel_memory, *block));
  module->WriteVariables();
  module->MakeHeap();
  return std::shared_ptr<const Module>(std::move(module));
}

void CpuModule::WriteVariables() {
  variable_infos_.assign(prepared_->variable_infos().begin(), prepared_->variable_infos().end());
  for (VariableInfo& variable : variable_infos_) variable.address += variables_.address;
  variable_memory_ = GetPieces(variable_infos_, variables_.bytes);
  for (const VariableContents::Piece& piece : prepared_->contents().pieces) {
    WriteAt(variables_.address + piece.offset, piece.bytes);
  }
  for (const ptx::ModuleLayout::AddressSlot& slot : prepared_->contents().slots) {
    const std::uint64_t value = (variables_.address + slot.target_offset) >> slot.shift;
    WriteAt(variables_.address + slot.offset,
            std::as_bytes(std::span(&value, 1)).first(slot.bytes));
  }
}

void CpuModule::MakeHeap() {
  const auto allocates = [](const auto& program) {
    return program->info().unsupported.empty() && program->allocates();
  };
  if (std::ranges::none_of(prepared_->programs(), allocates)) return;
  const Status made = kernel_memory_.heap.Make();
  if (made.ok()) return;
  kernels_.assign(prepared_->kernel_infos().begin(), prepared_->kernel_infos().end());
  for (std::size_t i = 0; i < kernels_.size(); ++i) {
    if (!allocates(prepared_->programs()[i])) continue;
    kernels_[i].unsupported = "device heap of " +
                              std::to_string(kernel_memory_.heap.bytes() >> 20) +
                              " MiB: " + std::string(made.message());
  }
}

CpuModule::~CpuModule() { range_.ReturnModuleBlock(variables_, prepared_->bytes()); }

executor::MemoryWindow CpuModule::window(const MemoryPieces::List& further) const {
  return {.base = range_.base(),
          .mapped_bytes = &range_.mapped_word(),
          .variables_base = variables_.address,
          .variables_bytes = variables_.bytes,
          .further = further};
}

namespace {

class CpuChunk : public Chunk {
 public:
  CpuChunk(AddressRange& range, const AddressRange::ChunkPlace& place)
      : range_(range), place_(place) {}
  CpuChunk(const CpuChunk&) = delete;
  CpuChunk& operator=(const CpuChunk&) = delete;
  ~CpuChunk() override { range_.ReturnChunk(place_); }

  const AddressRange::ChunkPlace& place() const { return place_; }

 private:
  AddressRange& range_;
  const AddressRange::ChunkPlace place_;
};

}  // namespace

Result<std::unique_ptr<Chunk>> CpuSpace::MakeChunk(std::uint64_t bytes) {
  const Result<AddressRange::ChunkPlace> place = range_->TakeChunk(bytes);
  if (!place) return place.status();
  return std::unique_ptr<Chunk>(std::make_unique<CpuChunk>(*range_, *place));
}

Status CpuSpace::MapChunk(Chunk& chunk, std::uint64_t address) {
  return range_->MapChunk(static_cast<CpuChunk&>(chunk).place(), address);
}

Status CpuSpace::SetKernelMemory(const KernelMemory& memory) {
  if (memory.heap_bytes != 0) {
    if (Status made = kernel_memory_.heap.SetBytes(memory.heap_bytes); !made.ok()) return made;
  }
  if (memory.stack_bytes != 0) {
    constexpr std::uint64_t kStep = 16;
    const std::uint64_t stack = (memory.stack_bytes + kStep - 1) / kStep * kStep;
    kernel_memory_.stack_bytes.store(
        std::clamp(stack, executor::kRecursionLocalBytes, executor::kStackBytesMax),
        std::memory_order_relaxed);
  }
  if (memory.printed_bytes != 0) {
    kernel_memory_.printed_bytes.store(std::max(memory.printed_bytes, kOutputBytesMax),
                                       std::memory_order_relaxed);
  }
  return {};
}

Result<std::shared_ptr<const Module>> CpuSpace::PlaceModule(
    std::shared_ptr<const PreparedModule> module) {
  return CpuModule::Place(std::static_pointer_cast<const CpuPrepared>(std::move(module)), *range_,
                          kernel_memory_);
}

Status CpuSpace::CheckMove() const {
  if (!kernel_memory_.heap.exists()) return {};
  return {StatusCode::kUnsupported, "its kernels have a heap"};
}

Result<std::shared_ptr<const Module>> CpuSpace::PlaceModuleAt(
    std::shared_ptr<const PreparedModule> module, std::uint64_t address) {
  return CpuModule::Place(std::static_pointer_cast<const CpuPrepared>(std::move(module)), *range_,
                          kernel_memory_, address);
}

KernelMemory CpuSpace::kernel_memory() const {
  return {.stack_bytes = kernel_memory_.stack_bytes.load(std::memory_order_relaxed),
          .printed_bytes = kernel_memory_.printed_bytes.load(std::memory_order_relaxed)};
}

}  // namespace gpushared::device
