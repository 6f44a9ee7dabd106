// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_SESSION_LIMITS_H_
#define GPUSHARED_SERVER_WORKER_STATE_SESSION_LIMITS_H_

#include <cstdint>

namespace gpushared::server {

// Limits of a worker and of one of its sessions. Every rejection names the limit.
struct SessionLimits {
  std::uint32_t sessions_max = 128;  // At most kSessionsLimit.
  // Sessions reserved for root, the server's uid and clients that may use the high class. The
  // fraction memory_kept of three kinds of memory is reserved for these clients as well: device
  // memory, and the shared halves of staging memory and of image memory (see staging_budget.h).
  std::uint32_t sessions_kept = 16;
  double memory_kept = 0.1;
  std::uint32_t modules_max = 8192;                          // Loaded at the same time.
  std::uint64_t module_bytes_max = std::uint64_t{64} << 20;  // Size of one image.
  // Total size of a session's loaded images.
  std::uint64_t modules_bytes_max = std::uint64_t{512} << 20;
  std::uint32_t staging_buffers_max = 64;
  std::uint64_t staging_bytes_max = std::uint64_t{256} << 20;  // Size of one staging buffer.
  // Total size of a session's staging buffers.
  std::uint64_t staging_bytes_total_max = std::uint64_t{1} << 30;
  std::uint64_t staging_bytes = std::uint64_t{4} << 30;  // Staging buffers of all sessions.
  std::uint64_t images_bytes = std::uint64_t{1} << 30;   // Images that all sessions write or load.
  // Memory mapped in one slow call, unless the growth would then take too many calls.
  std::uint64_t grow_step_bytes = std::uint64_t{1} << 30;
  // Chunks mapped by all sessions. Limited because on the cpu device each is one or two mappings of
  // this process, which may have 65,530 (vm.max_map_count).
  std::uint32_t mappings_max = 16384;
  std::uint32_t commands_taken_max = 1024;                   // Taken but not finished.
  std::uint64_t graphs_bytes_max = std::uint64_t{16} << 20;  // Host memory of one session's graphs.
  std::uint64_t graphs_bytes = std::uint64_t{512} << 20;     // Host memory of all sessions' graphs.
};

// Upper limits of sessions_max and commands_taken_max: WorkName (command_slab.h) stores the client
// in 8 bits and the command in 16.
inline constexpr std::uint32_t kSessionsLimit = 255;
inline constexpr std::uint32_t kCommandsTakenLimit = 65535;

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_SESSION_LIMITS_H_
