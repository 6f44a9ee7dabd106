// SPDX-License-Identifier: Apache-2.0
// Table of the figures reported to operators and to Prometheus. Each row defines one figure's key
// in `status --json` or `ps --json` and its metric family.

#ifndef GPUSHARED_SERVER_TELEMETRY_TOTALS_FIGURES_H_
#define GPUSHARED_SERVER_TELEMETRY_TOTALS_FIGURES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <variant>

#include "scheduler/residency.h"
#include "scheduler/types.h"
#include "server/device/inventory/gpu_readings.h"
#include "server/telemetry/totals/device_totals.h"

namespace gpushared::server {

// One figure of a `Row`.
template <typename Row>
struct Figure {
  std::variant<Total Row::*, std::uint64_t Row::*, double Row::*, scheduler::Duration Row::*,
               std::optional<double> Row::*>
      value;
  // Key in the answer. A Total is stored in nanoseconds if its key ends with "_s", and in
  // millijoules if its key ends with "_j".
  const char* key;
  const char* family = nullptr;  // Null: not exported to Prometheus.
  const char* help = nullptr;
  // Counter if true, otherwise gauge.
  bool never_falls = std::holds_alternative<Total Row::*>(value);
  // Omitted while it is 0, because most devices do not measure it.
  bool is_measured_by_gpu = false;
};

// Writes the row's figures into a JSON object.
template <typename Json, typename Row, std::size_t kFigures>
void WriteFigures(const Row& row, const Figure<Row> (&figures)[kFigures], Json& object) {
  for (const Figure<Row>& figure : figures) {
    const auto tell = [&](auto member) {
      const auto& value = row.*member;
      using Value = std::remove_cvref_t<decltype(value)>;
      if constexpr (std::is_same_v<Value, scheduler::Duration>) {
        object[figure.key] = std::chrono::duration<double>(value).count();
      } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
        if (value) object[figure.key] = *value;
      } else if constexpr (!std::is_same_v<Value, Total>) {
        object[figure.key] = value;
      } else if (figure.is_measured_by_gpu && value.Get() == 0) {
        return;
      } else if (std::string_view(figure.key).ends_with("_s")) {
        object[figure.key] = static_cast<double>(value.Get()) / 1e9;
      } else if (std::string_view(figure.key).ends_with("_j")) {
        object[figure.key] = static_cast<double>(value.Get()) / 1e3;
      } else {
        object[figure.key] = value.Get();
      }
    };
    std::visit(tell, figure.value);
  }
}

inline constexpr Figure<DeviceTotals::Layout> kDeviceFigures[] = {
    {&DeviceTotals::Layout::workers_started, "workers_started", "gpushared_workers_started",
     "Workers that were started for the device."},
    {&DeviceTotals::Layout::gap_ns, "gap_s", "gpushared_gap_seconds",
     "Time in which other clients had work and no client of the high class had any."},
    {&DeviceTotals::Layout::gap_used_ns, "gap_used_s", "gpushared_gap_used_seconds",
     "Gap time in which the device had work."},
    {&DeviceTotals::Layout::host_steal_ns, "host_steal_s", "gpushared_device_host_steal_seconds",
     "Time in which the machine kept the device from its work."},
    {&DeviceTotals::Layout::energy_mj, "energy_j", "gpushared_device_energy_joules",
     "Energy that the device used, clients' and idle.", true, true},
    {&DeviceTotals::Layout::energy_idle_mj, "energy_idle_j", "gpushared_device_idle_energy_joules",
     "Energy that the device used while no client was charged for it.", true, true},
    {&DeviceTotals::Layout::xids, "xids", "gpushared_gpu_xid_errors",
     "Critical errors (Xid) that the driver reported.", true, true},
};

// Sensors of a GPU.
inline constexpr Figure<device::GpuReadings> kGpuFigures[] = {
    {&device::GpuReadings::utilization, "utilization", "gpushared_gpu_utilization_ratio",
     "Part of the driver's last sample in which a kernel ran."},
    {&device::GpuReadings::memory_used_bytes, "memory_used_bytes",
     "gpushared_gpu_memory_used_bytes", "Memory in use by all processes and the driver."},
    {&device::GpuReadings::power_w, "power_w", "gpushared_gpu_power_watts", "Power draw."},
    {&device::GpuReadings::temperature_c, "temperature_c", "gpushared_gpu_temperature_celsius",
     "Temperature of the GPU."},
    {&device::GpuReadings::sm_clock_hz, "sm_clock_hz", "gpushared_gpu_sm_clock_hertz",
     "Clock of the multiprocessors."},
    {&device::GpuReadings::memory_clock_hz, "memory_clock_hz", "gpushared_gpu_memory_clock_hertz",
     "Clock of the memory."},
    {&device::GpuReadings::ecc_corrected, "ecc_corrected_errors",
     "gpushared_gpu_ecc_corrected_errors",
     "Memory errors that ECC corrected since the driver was loaded.", true},
    {&device::GpuReadings::ecc_uncorrected, "ecc_uncorrected_errors",
     "gpushared_gpu_ecc_uncorrected_errors",
     "Memory errors that ECC could not correct since the driver was loaded.", true},
    {&device::GpuReadings::last_xid, "last_xid", "gpushared_gpu_last_xid",
     "Number of the last critical error (Xid) that the worker saw."},
};

inline constexpr Figure<ClassTotals> kClassFigures[] = {
    {&ClassTotals::device_time_ns, "device_time_s", "gpushared_class_device_seconds",
     "Device time that clients of the class were charged."},
    {&ClassTotals::sessions, "sessions", "gpushared_sessions_started",
     "Sessions that began in the class."},
    {&ClassTotals::commands, "commands", "gpushared_commands",
     "Commands that were taken from clients."},
    {&ClassTotals::launches, "launches", "gpushared_launches", "Kernel launches that finished."},
    {&ClassTotals::copies, "copies", "gpushared_copies", "Copies that finished."},
    {&ClassTotals::fills, "fills", "gpushared_fills", "Fills that finished."},
    {&ClassTotals::bytes_in, "bytes_in", "gpushared_copied_in_bytes",
     "Bytes copied to the device."},
    {&ClassTotals::bytes_out, "bytes_out", "gpushared_copied_out_bytes",
     "Bytes copied from the device."},
    {&ClassTotals::bytes_on_device, "bytes_on_device", "gpushared_copied_on_device_bytes",
     "Bytes copied on the device, or filled."},
    {&ClassTotals::commands_rejected, "commands_rejected", "gpushared_commands_rejected",
     "Commands that the server rejected."},
    {&ClassTotals::commands_failed, "commands_failed", "gpushared_commands_failed",
     "Commands that the device ended with an error."},
    {&ClassTotals::commands_skipped, "commands_skipped", "gpushared_commands_skipped",
     "Commands that an earlier error of their stream skipped."},
    {&ClassTotals::stops, "stops", "gpushared_stops", "Times a command was preempted."},
    {&ClassTotals::wasted_ns, "wasted_s", "gpushared_wasted_seconds",
     "Device time of work that was preempted before it made progress, or failed."},
    {&ClassTotals::requests, "requests", "gpushared_requests", "Requests that ended."},
    {&ClassTotals::requests_with_target, "requests_with_target", "gpushared_requests_with_target",
     "Requests that ended and had a latency target."},
    {&ClassTotals::requests_target_met, "requests_target_met", "gpushared_requests_target_met",
     "Requests that ended within their latency target and without an error."},
    {&ClassTotals::targets_abandoned, "targets_abandoned", "gpushared_targets_abandoned",
     "Latency targets that the policy abandoned because of overload."},
    {&ClassTotals::memory_out_bytes, "memory_out_bytes", "gpushared_memory_swapped_out_bytes",
     "Device memory swapped out to host memory for other clients."},
    {&ClassTotals::memory_in_bytes, "memory_in_bytes", "gpushared_memory_swapped_in_bytes",
     "Device memory swapped in from host memory."},
    {&ClassTotals::memory_swaps, "memory_swaps", "gpushared_memory_swaps",
     "Times a client whose memory was all on the device lost some of it."},
    {&ClassTotals::memory_waited_ns, "memory_waited_s", "gpushared_memory_waited_seconds",
     "Time in which a client had work or asked for memory, but its memory was not on the device."},
    {&ClassTotals::energy_mj, "energy_j", "gpushared_class_energy_joules",
     "Energy that the device used for clients of the class.", true, true},
};

// Histograms in the same table.
struct HistogramFigure {
  TotalHistogram ClassTotals::*value;
  const char *key, *family, *help;
};
inline constexpr HistogramFigure kClassHistograms[] = {
    {&ClassTotals::queue_wait, "queue_wait", "gpushared_queue_wait_seconds",
     "Time from taking a command out of its ring to submitting it to the device."},
    {&ClassTotals::request_time, "request_time", "gpushared_request_seconds",
     "Time of a request from its beginning to its end."},
    {&ClassTotals::stop_time, "stop_time", "gpushared_stop_seconds",
     "Time from asking a command to stop until it had left the device."},
};

inline constexpr Figure<OwnerTotals> kOwnerFigures[] = {
    {&OwnerTotals::device_time_ns, "device_time_s", "gpushared_owner_device_seconds",
     "Device time of clients of the owner."},
    {&OwnerTotals::energy_mj, "energy_j", "gpushared_owner_energy_joules",
     "Energy that the device used for clients of the owner.", true, true},
    {&OwnerTotals::sessions, "sessions", "gpushared_owner_sessions_started",
     "Sessions of the owner that began."},
    {&OwnerTotals::requests, "requests", "gpushared_owner_requests",
     "Requests of the owner's clients that ended."},
    {&OwnerTotals::requests_with_target, "requests_with_target",
     "gpushared_owner_requests_with_target",
     "Requests of the owner's clients that ended and had a latency target."},
    {&OwnerTotals::requests_target_met, "requests_target_met",
     "gpushared_owner_requests_target_met",
     "Requests of the owner's clients that ended within their latency target."},
};

inline constexpr Figure<EndpointTotals> kEndpointFigures[] = {
    {&EndpointTotals::device_time_ns, "device_time_s", "gpushared_endpoint_device_seconds",
     "Device time of clients that came through the endpoint."},
    {&EndpointTotals::sessions, "sessions", "gpushared_endpoint_sessions_started",
     "Sessions that began through the endpoint."},
    {&EndpointTotals::commands, "commands", "gpushared_endpoint_commands",
     "Commands that were taken from the endpoint's clients."},
    {&EndpointTotals::bytes_in, "bytes_in"},
    {&EndpointTotals::bytes_out, "bytes_out"},
    {&EndpointTotals::bytes_on_device, "bytes_on_device"},
    {&EndpointTotals::requests, "requests", "gpushared_endpoint_requests",
     "Requests of the endpoint's clients that ended."},
    {&EndpointTotals::requests_with_target, "requests_with_target",
     "gpushared_endpoint_requests_with_target",
     "Requests of the endpoint's clients that ended and had a target."},
    {&EndpointTotals::requests_target_met, "requests_target_met",
     "gpushared_endpoint_requests_target_met",
     "Requests of the endpoint's clients that ended within their target."},
};

// Current sessions of one class.
struct ClassNow {
  std::uint64_t sessions = 0, waiting = 0;
  std::uint64_t memory_bytes = 0, resident_bytes = 0, guaranteed_bytes = 0;
  double quota_used_most = 0;
};
inline constexpr Figure<ClassNow> kClassNowFigures[] = {
    {&ClassNow::sessions, "sessions", "gpushared_class_sessions", "Live sessions of the class."},
    {&ClassNow::waiting, "waiting", "gpushared_class_sessions_waiting",
     "Sessions of the class that have commands, but none on the device."},
    {&ClassNow::memory_bytes, "memory_bytes", "gpushared_class_memory_bytes",
     "Device memory that sessions of the class hold."},
    {&ClassNow::resident_bytes, "resident_bytes", "gpushared_class_memory_resident_bytes",
     "Memory of sessions of the class that is on the device."},
    {&ClassNow::guaranteed_bytes, "guaranteed_bytes", "gpushared_class_memory_guaranteed_bytes",
     "Device memory that is guaranteed to sessions of the class."},
    {&ClassNow::quota_used_most, "quota_used_most", "gpushared_class_quota_used_ratio",
     "Largest fraction of its quota that a session of the class holds."},
};

// Current state of one owner.
struct OwnerNow {
  std::uint64_t sessions = 0, memory_bytes = 0;
};
inline constexpr Figure<OwnerNow> kOwnerNowFigures[] = {
    {&OwnerNow::sessions, "sessions", "gpushared_owner_sessions", "Live sessions of the owner."},
    {&OwnerNow::memory_bytes, "memory_bytes", "gpushared_owner_memory_bytes",
     "Device memory that sessions of the owner hold."},
};

// Swap space, and how memory is swapped.
struct OvercommitNow : scheduler::MemoryRequestStats {
  std::uint64_t total_bytes = 0, reserved_bytes = 0, used_bytes = 0;
};
inline constexpr Figure<OvercommitNow> kOvercommitFigures[] = {
    {&OvercommitNow::total_bytes, "bytes", "gpushared_overcommit_bytes",
     "Host memory for swapped-out device memory."},
    {&OvercommitNow::reserved_bytes, "reserved_bytes", "gpushared_overcommit_reserved_bytes",
     "Host memory for swapped-out device memory that is reserved for clients."},
    {&OvercommitNow::used_bytes, "used_bytes", "gpushared_overcommit_used_bytes",
     "Host memory that holds swapped-out device memory now."},
    {&OvercommitNow::out_bytes_per_s, "swap_out_bytes_per_s",
     "gpushared_overcommit_swap_out_bytes_per_second",
     "Median speed of recent swaps from the device to host memory."},
    {&OvercommitNow::in_bytes_per_s, "swap_in_bytes_per_s",
     "gpushared_overcommit_swap_in_bytes_per_second",
     "Median speed of recent swaps from host memory to the device."},
    {&OvercommitNow::requests, "memory_requests", "gpushared_overcommit_memory_requests",
     "Requests for guaranteed memory that had to be freed first.", true},
    {&OvercommitNow::longest_wait, "memory_request_longest_s",
     "gpushared_overcommit_memory_request_longest_seconds",
     "Longest wait of a request for guaranteed memory that had to be freed."},
    {&OvercommitNow::parked, "parked", "gpushared_overcommit_parked",
     "Clients whose memory is parked in host memory."},
    {&OvercommitNow::wakes, "wakes", "gpushared_overcommit_wakes",
     "Parked clients that were woken.", true},
    {&OvercommitNow::wakes_promised, "wakes_promised", "gpushared_overcommit_wakes_promised",
     "Wakes for which a duration was promised when the client was parked.", true},
    {&OvercommitNow::wakes_in_time, "wakes_in_time", "gpushared_overcommit_wakes_in_time",
     "Wakes that took at most the promised duration.", true},
    {&OvercommitNow::longest_wake, "wake_longest_s", "gpushared_overcommit_wake_longest_seconds",
     "Longest time from waking a client until its commands could run."},
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TELEMETRY_TOTALS_FIGURES_H_
