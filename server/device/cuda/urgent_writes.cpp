// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/urgent_writes.h"

#include <utility>

namespace gpushared::device::cuda {

Result<std::shared_ptr<UrgentWrites>> UrgentWrites::Create(std::shared_ptr<CudaContext> context) {
  std::shared_ptr<UrgentWrites> writes(new UrgentWrites(std::move(context)));
  if (Status status = writes->Start(); !status.ok()) return status;
  return writes;
}

Status UrgentWrites::Start() {
  const Driver& driver = context_->driver();
  int least = 0;
  int greatest = 0;  // Smaller numbers are more urgent.
  Status status =
      context_->Try("asking for priorities", driver.CtxGetStreamPriorityRange, &least, &greatest);
  if (status.ok()) {
    status = context_->Try("making a stream", driver.StreamCreateWithPriority, &stream_,
                           kStreamNonBlocking, greatest);
  }
  if (status.ok()) {
    status = context_->Try("making an event", driver.EventCreate, &mark_, kEventDisableTiming);
  }
  return status;
}

UrgentWrites::~UrgentWrites() {
  if (context_->is_dead() || !context_->Bind().ok()) return;
  const Driver& driver = context_->driver();
  if (stream_ != nullptr) (void)context_->Call(driver.StreamDestroy, stream_);
  if (mark_ != nullptr) (void)context_->Call(driver.EventDestroy, mark_);
}

Status UrgentWrites::Write(DeviceAddress word, std::uint32_t value) {
  const Driver& driver = context_->driver();
  if (!driver.Has(Feature::kStreamMemoryOperations)) return Fill(word, value, 1);
  return context_->Try("writing a word", driver.StreamWriteValue32, stream_, word, value,
                       kWriteValueDefault);
}

Status UrgentWrites::Fill(DeviceAddress first, std::uint32_t value, std::size_t words) {
  return context_->Try("writing device memory", context_->driver().MemsetD32Async, first, value,
                       words, stream_);
}

Status UrgentWrites::Mark() {
  return context_->Try("marking a stream", context_->driver().EventRecord, mark_, stream_);
}

Result<bool> UrgentWrites::HasPassed() {
  const Code code = context_->Call(context_->driver().EventQuery, mark_);
  if (code == Code::kSuccess) return true;
  if (code == Code::kNotReady) return false;
  return context_->Explain("polling a mark", context_->driver().EventQuery.name(), code);
}

Status UrgentWrites::Wait() {
  return context_->Try("waiting for device memory", context_->driver().StreamSynchronize, stream_);
}

}  // namespace gpushared::device::cuda
