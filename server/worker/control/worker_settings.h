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

// Where no limit is given, for the classes high, normal and low.
inline constexpr std::array<std::optional<std::chrono::nanoseconds>, scheduler::kSchedulingClasses>
    kKernelLimitsBuiltIn = {std::nullopt, std::chrono::seconds(60), std::chrono::seconds(10)};

// The part of the configuration that each worker is told.
//
// Thread-compatible value; constant after parsing.
struct WorkerSettings {
  std::string policy = "priority";  // A name of scheduler::PolicyCatalog.
  scheduler::PolicyOptions policy_options;
  // Clients of one uid share what one client would have, under policies that share by weight.
  bool shares_by_uid = true;
  std::uint32_t cpu_threads = 1;   // Executor threads of each cpu device.
  std::uint64_t memory_bytes = 0;  // Device memory of each cpu device.
  // Host memory through which clients of one device copy, all of them together.
  std::uint64_t staging_bytes = 0;
  // Where device memory goes that clients hold beyond their guarantees; 0 bytes: there is no such
  // memory. In a file of `overcommit_directory`, if that is named.
  std::uint64_t overcommit_bytes = 0;
  std::string overcommit_directory;
  // By class: how long one kernel may run; none: as long as it takes. A longer one is ended alone
  // where Device::CanKill. Where it cannot be, only a limit that was given ends the device.
  std::array<std::optional<std::chrono::nanoseconds>, scheduler::kSchedulingClasses> kernel_limits =
      kKernelLimitsBuiltIn;
  std::array<bool, scheduler::kSchedulingClasses> kernel_limits_given = {};
  loader::LoadLimit load_limit;  // For one module.
  // Directory in which each device's worker keeps what it learns of kernels; empty: nowhere.
  std::string cost_directory;
  device::cuda::CompletionKind cuda_completion = device::cuda::CompletionKind::kEvents;
  device::SmLimits sm_limits;  // By class; none: all multiprocessors.
  // What compiles rewritten kernels of GPUs, and where its results are kept; empty: the usual
  // places (code_compiler.h), kNone: nothing. kDriver: the GPU's driver compiles, inside the
  // worker, whoever wrote them.
  std::string ptx_compiler, code_cache;
  static constexpr std::string_view kNone = "none", kDriver = "driver";
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_WORKER_SETTINGS_H_
