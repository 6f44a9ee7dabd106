// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/host_memory.h"

#include <string>
#include <utility>

namespace gpushared::device::cuda {

class PinnedRegions::Registration : public PinnedMemory {
 public:
  Registration(std::shared_ptr<PinnedRegions> regions, std::span<std::byte> memory)
      : regions_(std::move(regions)), memory_(memory) {}
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration() override {
    {
      const MutexLock lock(regions_->mutex_);
      regions_->regions_.erase(reinterpret_cast<std::uintptr_t>(memory_.data()));
    }
    CudaContext& context = *regions_->context_;
    if (context.is_dead() || !context.Bind().ok()) return;
    const IdleWindow window(context.idle_windows(), Urgency::kAwaited);
    (void)context.Call(context.driver().MemHostUnregister, memory_.data());
  }

 private:
  const std::shared_ptr<PinnedRegions> regions_;
  const std::span<std::byte> memory_;
};

Result<std::unique_ptr<PinnedMemory>> PinnedRegions::Pin(std::shared_ptr<PinnedRegions> regions,
                                                         std::span<std::byte> memory) {
  CudaContext& context = *regions->context_;
  const Driver& driver = context.driver();
  if (!driver.Has(Feature::kHostRegister) ||
      context.Attribute(DeviceAttribute::kHostRegister, 0) == 0) {
    return Status(StatusCode::kUnsupported, "this GPU or driver cannot register host memory");
  }
  if (context.is_dead()) return context.death();
  if (Status status = context.Bind(); !status.ok()) return status;
  const IdleWindow window(context.idle_windows(), Urgency::kAwaited);
  Status status = context.Try("registering host memory", driver.MemHostRegister,
                              static_cast<void*>(memory.data()), memory.size(), kHostPortable);
  if (!status.ok()) return status;
  {
    const MutexLock lock(regions->mutex_);
    regions->regions_[reinterpret_cast<std::uintptr_t>(memory.data())] = memory.size();
  }
  return std::unique_ptr<PinnedMemory>(std::make_unique<Registration>(std::move(regions), memory));
}

bool PinnedRegions::Covers(const std::byte* from, std::uint64_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  const MutexLock lock(mutex_);
  auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return false;
  const auto& [start, size] = *--after;
  const std::uint64_t offset = address - start;
  return offset <= size && bytes <= size - offset;
}

Result<std::unique_ptr<BounceBuffers>> BounceBuffers::Create(std::shared_ptr<CudaContext> context) {
  void* memory = nullptr;
  Status status = context->Try("allocating pinned host memory", context->driver().MemHostAlloc,
                               &memory, kCount * kBytes, kHostPortable);
  if (!status.ok()) return status;
  return std::unique_ptr<BounceBuffers>(
      new BounceBuffers(std::move(context), static_cast<std::byte*>(memory)));
}

BounceBuffers::BounceBuffers(std::shared_ptr<CudaContext> context, std::byte* memory)
    : context_(std::move(context)), memory_(memory) {
  for (std::size_t i = 0; i < kCount; ++i) free_.push_back(memory_ + i * kBytes);
}

BounceBuffers::~BounceBuffers() {
  if (context_->is_dead() || !context_->Bind().ok()) return;
  (void)context_->Call(context_->driver().MemFreeHost, static_cast<void*>(memory_));
}

std::byte* BounceBuffers::Take() {
  if (free_.empty()) return nullptr;
  std::byte* const buffer = free_.back();
  free_.pop_back();
  return buffer;
}

}  // namespace gpushared::device::cuda
