// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_SAVED_CLIENT_H_
#define GPUSHARED_SERVER_WORKER_STATE_SAVED_CLIENT_H_

#include <cstdint>
#include <vector>

#include "ipc/wire/fields.h"
#include "ipc/wire/layout.h"
#include "server/worker/state/counters.h"

namespace gpushared::server {

struct SavedStream {
  std::uint32_t stream = 0;
  bool is_live = false;
  std::uint64_t finished = 0;      // Last command, which has ended, like all before it.
  std::uint64_t last_time_ns = 0;  // See StreamState.
  // Failed commands of an earlier incarnation.
  std::uint64_t failed_first = 0;
  std::uint64_t failed_last = 0;

  void Visit(ipc::Fields& f);
};

struct SavedBuffer {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;

  void Visit(ipc::Fields& f);
};

// State of a client on the device thread, at a time when none of its commands is unfinished and
// none of its requests is open. With it, another worker continues the client.
//
// Everything is input to that worker, because the first one may have been corrupted by one of its
// clients.
struct SavedClient {
  static constexpr char kName[] = "SavedClient";
  static constexpr std::uint32_t kBytesMax = std::uint32_t{4} << 20;

  // Positions in the rings: what this worker has taken and written, how much of the former it has
  // published, and how much of the latter the client is known to have taken.
  std::uint64_t commands_taken = 0, commands_published = 0;
  std::uint64_t completions_written = 0, completions_taken = 0;
  std::uint32_t completions_reserved = 0;
  std::uint64_t last_sleep = 0;  // See ipc::WorkerSleep::Add.
  std::uint64_t last_request = 0;
  bool has_marked_requests = false;
  ClientCounters counters;
  std::vector<SavedStream> streams;
  std::vector<SavedBuffer> buffers;

  void Visit(ipc::Fields& f);
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_SAVED_CLIENT_H_
