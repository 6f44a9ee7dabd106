// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/claim_words.h"

#include <utility>

namespace gpushared::device::cuda {

Result<std::unique_ptr<ClaimWords>> ClaimWords::Create(std::shared_ptr<CudaContext> context,
                                                       std::size_t channels, std::uint32_t epoch) {
  std::unique_ptr<ClaimWords> words(new ClaimWords(std::move(context)));
  Status status = words->Start(channels * kSlotsPerChannel, epoch);
  if (!status.ok()) return status;
  return words;
}

Status ClaimWords::Start(std::size_t slots, std::uint32_t epoch) {
  const Driver& driver = context_->driver();
  epochs_.assign(slots, epoch);
  taken_.assign(slots, false);
  int least = 0;
  int greatest = 0;
  Status status =
      context_->Try("asking for priorities", driver.CtxGetStreamPriorityRange, &least, &greatest);
  if (status.ok()) {
    status = context_->Try("making a stream", driver.StreamCreateWithPriority, &stream_,
                           kStreamNonBlocking, greatest);
  }
  if (status.ok()) {
    status = context_->Try("taking device memory", driver.MemAlloc, &device_, slots * kSlotBytes);
  }
  void* host = nullptr;
  if (status.ok()) {
    status = context_->Try("taking pinned host memory", driver.MemHostAlloc, &host,
                           slots * sizeof *host_, kHostPortable);
  }
  host_ = static_cast<std::uint32_t*>(host);
  // The counters, too: they are set anew by every launch.
  if (status.ok()) {
    status = context_->Try("writing device memory", driver.MemsetD32Async, device_, epoch,
                           slots * kSlotBytes / sizeof epoch, stream_);
  }
  if (status.ok()) {
    status = context_->Try("waiting for device memory", driver.StreamSynchronize, stream_);
  }
  return status;
}

ClaimWords::~ClaimWords() {
  if (context_->is_dead() || !context_->Bind().ok()) return;
  const Driver& driver = context_->driver();
  // A stop word may be on its way, or the counter of a launch that the driver refused.
  (void)context_->Call(driver.CtxSynchronize);
  if (stream_ != nullptr) (void)context_->Call(driver.StreamDestroy, stream_);
  if (device_ != 0) (void)context_->Call(driver.MemFree, device_);
  if (host_ != nullptr) (void)context_->Call(driver.MemFreeHost, static_cast<void*>(host_));
}

std::optional<ClaimWords::Slot> ClaimWords::Take(std::size_t channel) {
  for (std::size_t i = 0; i < kSlotsPerChannel; ++i) {
    const std::size_t number = channel * kSlotsPerChannel + i;
    if (taken_[number]) continue;
    taken_[number] = true;
    return Slot{.number = number, .epoch = ++epochs_[number]};
  }
  return std::nullopt;
}

void ClaimWords::Return(const Slot& slot) { taken_[slot.number] = false; }

Status ClaimWords::Begin(const Slot& slot, std::uint32_t first_block, Stream stream) {
  // On the stream of the stops, lest it undo one that comes before the launch has begun.
  if (slot.epoch % kRenewalEpochs == 0) SetStop(slot, slot.epoch - 1);
  return context_->Try("setting the counter of a launch", context_->driver().MemsetD32Async,
                       CounterOf(slot), first_block, std::size_t{1}, stream);
}

Status ClaimWords::Read(const Slot& slot, Stream stream) {
  return context_->Try("reading the counter of a launch", context_->driver().MemcpyDtoHAsync,
                       static_cast<void*>(&host_[slot.number]), CounterOf(slot), sizeof *host_,
                       stream);
}

void ClaimWords::SetStop(const Slot& slot, std::uint32_t epoch) {
  const Driver& driver = context_->driver();
  if (driver.Has(Feature::kStreamMemoryOperations)) {
    (void)context_->Call(driver.StreamWriteValue32, stream_, StopOf(slot), epoch,
                         kWriteValueDefault);
  } else {
    (void)context_->Call(driver.MemsetD32Async, StopOf(slot), epoch, std::size_t{1}, stream_);
  }
}

}  // namespace gpushared::device::cuda
