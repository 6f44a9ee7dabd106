// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_WORKER_SETTINGS_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_WORKER_SETTINGS_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "scheduler/types.h"
#include "server/device/cuda/completion_kind.h"
#include "server/device/sm_limit.h"
#include "server/modules/loader/load_limit.h"

namespace gpushared::server {

// Default kernel time limits of the classes high, normal and low.
inline constexpr std::array<std::optional<std::chrono::nanoseconds>, scheduler::kSchedulingClasses>
    kKernelLimitsBuiltIn = {std::nullopt, std::chrono::seconds(60), std::chrono::seconds(10)};

// The part of the configuration that is passed to each worker.
//
// Thread-compatible value; constant after parsing.
struct WorkerSettings {
  std::string policy = "priority";  // A name in scheduler::PolicyCatalog.
  scheduler::PolicyOptions policy_options;
  // Whether, under policies that share by weight, all clients of one uid together get the share of
  // a single client.
  bool shares_by_uid = true;
  std::uint32_t cpu_threads = 1;   // Executor threads of each cpu device.
  std::uint64_t memory_bytes = 0;  // Device memory of each cpu device.
  // Total host memory for the staging buffers of a device's clients.
  std::uint64_t staging_bytes = 0;
  // Swap space for device memory that clients hold beyond their guarantees; 0 disables
  // oversubscription. The swap space is a file in `overcommit_directory` if that is set, otherwise
  // host memory.
  std::uint64_t overcommit_bytes = 0;
  std::string overcommit_directory;
  // Idle time after which a client that is not urgent is parked; never if zero.
  std::chrono::nanoseconds idle_after{};
  // Time limit of one kernel, by class; none if unlimited. A kernel that exceeds its limit is ended
  // individually if Device::CanKill. Otherwise the device ends with it, but only if the limit was
  // configured explicitly.
  std::array<std::optional<std::chrono::nanoseconds>, scheduler::kSchedulingClasses> kernel_limits =
      kKernelLimitsBuiltIn;
  std::array<bool, scheduler::kSchedulingClasses> kernel_limits_given = {};
  loader::LoadLimit load_limit;  // Limits for reading one module.
  // Directory in which each device's worker persists kernel costs; empty if they are not persisted.
  std::string cost_directory;
  device::cuda::CompletionKind cuda_completion = device::cuda::CompletionKind::kEvents;
  device::SmLimits sm_limits;  // Multiprocessors of each class; unset: all of them.
  // Compiler for rewritten GPU kernels, and the cache directory for its results. Empty: the default
  // locations (code_compiler.h). kNone: none. kDriver: the GPU's driver compiles inside the worker
  // for all clients.
  std::string ptx_compiler, code_cache;
  static constexpr std::string_view kNone = "none", kDriver = "driver";
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_WORKER_SETTINGS_H_
