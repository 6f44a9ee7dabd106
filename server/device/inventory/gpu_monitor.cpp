// SPDX-License-Identifier: Apache-2.0
#include "server/device/inventory/gpu_monitor.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace gpushared::device {
namespace {

constexpr unsigned kMonitorGpusMax = 256;
constexpr std::size_t kMonitorTextBytes = 96;  // Size of NVML's own buffers.
constexpr unsigned kXidsPerReadingMax = 64;
// Values of NVML's enumerations and event types.
constexpr int kGpuSensor = 0, kSmClock = 1, kMemoryClock = 2;
constexpr int kCorrected = 0, kUncorrected = 1, kSinceDriverLoad = 0;
constexpr std::uint64_t kXidEvent = 8;

// Calls a function that a driver may lack or a board may not support.
template <typename... Parameters, typename... Arguments>
bool Succeeds(nvml::Code (*function)(Parameters...), Arguments... arguments) {
  return function != nullptr && function(arguments...) == nvml::Code::kSuccess;
}

}  // namespace

GpuMonitor::~GpuMonitor() {
  if (events_ != nullptr) (void)Succeeds(nvml_->EventSetFree, events_);
}

void GpuMonitor::Open() {
  is_open_ = true;
  Result<std::unique_ptr<const nvml::Nvml>> loaded = nvml::Nvml::Load(library_);
  if (!loaded.ok()) return;
  nvml_ = *std::move(loaded);
  unsigned count = 0;
  if (nvml_->DeviceGetCount(&count) != nvml::Code::kSuccess) return;
  for (unsigned i = 0; i < std::min(count, kMonitorGpusMax) && device_ == nullptr; ++i) {
    nvml::DeviceHandle device = nullptr;
    std::array<char, kMonitorTextBytes> uuid{};
    if (nvml_->DeviceGetHandleByIndex(i, &device) == nvml::Code::kSuccess &&
        nvml_->DeviceGetUUID(device, uuid.data(), uuid.size() - 1) == nvml::Code::kSuccess &&
        uuid_ == uuid.data()) {
      device_ = device;
    }
  }
  if (device_ == nullptr || !Succeeds(nvml_->EventSetCreate, &events_)) return;
  if (!Succeeds(nvml_->DeviceRegisterEvents, device_, kXidEvent, events_)) {
    (void)Succeeds(nvml_->EventSetFree, events_);
    events_ = nullptr;
  }
}

void GpuMonitor::ReadXids(GpuReadings& readings) {
  nvml::EventData event;
  while (events_ != nullptr && readings.xids < kXidsPerReadingMax &&
         Succeeds(nvml_->EventSetWait, events_, &event, 0U)) {
    if (event.type != kXidEvent) continue;
    ++readings.xids;
    last_xid_ = static_cast<double>(event.data);
  }
  readings.last_xid = last_xid_;
}

GpuReadings GpuMonitor::Read() {
  if (!is_open_) Open();
  GpuReadings readings;
  if (device_ == nullptr) return readings;
  // The energy is read first, because this reading ends the interval for which energy is counted.
  std::uint64_t count = 0;
  if (Succeeds(nvml_->DeviceGetTotalEnergyConsumption, device_, &count)) readings.energy_mj = count;
  nvml::Utilization utilization;
  if (Succeeds(nvml_->DeviceGetUtilizationRates, device_, &utilization)) {
    readings.utilization = utilization.gpu / 100.0;
  }
  nvml::MemoryInfo memory;
  if (Succeeds(nvml_->DeviceGetMemoryInfo, device_, &memory)) {
    readings.memory_used_bytes = static_cast<double>(memory.used);
  }
  unsigned number = 0;
  if (Succeeds(nvml_->DeviceGetPowerUsage, device_, &number)) readings.power_w = number / 1e3;
  if (Succeeds(nvml_->DeviceGetTemperature, device_, kGpuSensor, &number)) {
    readings.temperature_c = number;
  }
  if (Succeeds(nvml_->DeviceGetClockInfo, device_, kSmClock, &number)) {
    readings.sm_clock_hz = number * 1e6;
  }
  if (Succeeds(nvml_->DeviceGetClockInfo, device_, kMemoryClock, &number)) {
    readings.memory_clock_hz = number * 1e6;
  }
  for (const int kind : {kCorrected, kUncorrected}) {
    if (!Succeeds(nvml_->DeviceGetTotalEccErrors, device_, kind, kSinceDriverLoad, &count))
      continue;
    (kind == kCorrected ? readings.ecc_corrected : readings.ecc_uncorrected) =
        static_cast<double>(count);
  }
  ReadXids(readings);
  return readings;
}

}  // namespace gpushared::device
