// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/claim_words.h"

#include <utility>

namespace gpushared::device::cuda {

Result<std::unique_ptr<ClaimWords>> ClaimWords::Create(std::shared_ptr<CudaContext> context,
                                                       std::shared_ptr<UrgentWrites> stops,
                                                       std::size_t channels, std::uint32_t epoch) {
  std::unique_ptr<ClaimWords> words(new ClaimWords(std::move(context), std::move(stops)));
  Status status = words->Start(channels * kSlotsPerChannel, epoch);
  if (!status.ok()) return status;
  return words;
}

Status ClaimWords::Start(std::size_t slots, std::uint32_t epoch) {
  const Driver& driver = context_->driver();
  epochs_.assign(slots, epoch);
  taken_.assign(slots, false);
  counters_.assign(slots, epoch);
  Status status =
      context_->Try("allocating device memory", driver.MemAlloc, &device_, slots * kSlotBytes);
  void* host = nullptr;
  if (status.ok()) {
    status = context_->Try("allocating pinned host memory", driver.MemHostAlloc, &host,
                           slots * sizeof *host_, kHostPortable);
  }
  host_ = static_cast<std::uint32_t*>(host);
  // One fill for stop words and counters, because a counter may begin with any known value.
  if (status.ok()) {
    status = stops_->Fill(device_, epoch, slots * kSlotBytes / sizeof epoch);
  }
  return status.ok() ? stops_->Wait() : status;
}

ClaimWords::~ClaimWords() {
  if (context_->is_dead() || !context_->Bind().ok()) return;
  const Driver& driver = context_->driver();
  // A write of a stop word may still be in flight, as may the memset of a counter whose launch the
  // driver then rejected.
  (void)context_->Call(driver.CtxSynchronize);
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

Result<std::uint32_t> ClaimWords::Begin(const Slot& slot, std::uint32_t first_block,
                                        Stream stream) {
  // Renews the stop word on the stream that also writes stops. On the launch's stream, the renewal
  // could run later and overwrite a stop of this launch.
  if (slot.epoch % kRenewalEpochs == 0) (void)stops_->Write(GetStop(slot), slot.epoch - 1);
  // The counter's value is unknown from here until RecordClaimed.
  const auto counter = std::exchange(counters_[slot.number], std::nullopt);
  if (counter) return *counter - first_block;
  Status status =
      context_->Try("setting the counter of a launch", context_->driver().MemsetD32Async,
                    GetCounter(slot), first_block, std::size_t{1}, stream);
  if (!status.ok()) return status;
  return 0U;
}

Status ClaimWords::Read(const Slot& slot, Stream stream) {
  return context_->Try("reading the counter of a launch", context_->driver().MemcpyDtoHAsync,
                       static_cast<void*>(&host_[slot.number]), GetCounter(slot), sizeof *host_,
                       stream);
}

}  // namespace gpushared::device::cuda
