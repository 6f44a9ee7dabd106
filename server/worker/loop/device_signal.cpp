// SPDX-License-Identifier: Apache-2.0
#include "server/worker/loop/device_signal.h"

#include <unistd.h>

#include <cstdint>

#include "ipc/doorbell.h"

namespace gpushared::server {

Result<std::unique_ptr<DeviceSignal>> DeviceSignal::Create() {
  auto eventfd = ipc::MakeDoorbell();
  if (!eventfd.ok()) return eventfd.status();
  return std::unique_ptr<DeviceSignal>(new DeviceSignal(*std::move(eventfd)));
}

void DeviceSignal::Wake() {
  ipc::FullMemoryBarrier();
  // Relaxed, because the full memory barrier orders it after the caller's publication.
  if (page_.sleeping.load(std::memory_order_relaxed) == 0) return;
  const std::uint64_t one = 1;
  // If the counter is full (EAGAIN), the eventfd is readable all the same.
  [[maybe_unused]] const ssize_t written = ::write(eventfd_.get(), &one, sizeof one);
}

}  // namespace gpushared::server
