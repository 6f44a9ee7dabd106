// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TELEMETRY_TRACE_READER_H_
#define GPUSHARED_SERVER_TELEMETRY_TRACE_READER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "gpushared/result.h"

#include "ipc/shared_segment.h"
#include "ipc/unique_fd.h"
#include "server/telemetry/trace/event.h"
#include "server/telemetry/trace/layout.h"

namespace gpushared::trace {

// Follows a trace from the moment it is opened. Never delays the writer: a reader that falls behind
// loses the oldest events and receives their number.
//
// Thread-compatible.
class Reader {
 public:
  // `memory`: the descriptor that a worker shares. Returns kProtocolViolation for other files, and
  // kVersionMismatch for another layout.
  static Result<Reader> Open(ipc::UniqueFd memory);

  struct Progress {
    std::uint64_t events = 0;  // Reported by this call.
    std::uint64_t lost = 0;    // Overwritten before this call could read them.
  };
  // Reports the events written so far, oldest first: commands when they leave the device, requests
  // when they end. Does not block; one call every 10 ms keeps up with any load.
  Progress Poll(const std::function<void(const Event&)>& tell);

  // Name of a session, or null if it is unknown or has been dropped. Names come from clients: they
  // are printable UTF-8 of at most kNameBytesMax bytes, and otherwise untrusted.
  const Name* GetClient(std::uint64_t session) const { return Find(Name::Of::kClient, session); }
  const Name* KernelFor(std::uint64_t kernel) const { return Find(Name::Of::kKernel, kernel); }
  // Returns for example "gemm" or "copy to device", or "kernel" if its name is unknown.
  std::string GetWhat(const Slice& slice) const;

 private:
  static constexpr std::size_t kCopiesMax = 256;
  static constexpr std::size_t kNamesKeptMax = std::size_t{1} << 16;
  struct Copies {
    std::array<EventWords, kCopiesMax> events;
    std::array<NameWords, kCopiesMax> names;
  };
  using Key = std::uint64_t;  // Key of the map, which clients and kernels share.

  explicit Reader(ipc::SharedSegment memory);
  void ReadNames();
  void ChargeAfterOthers(Slice& slice);
  void Keep(Name name);
  const Name* Find(Name::Of of, std::uint64_t key) const;
  static Key GetKey(Name::Of of, std::uint64_t key) {
    return key << 1 | static_cast<std::uint64_t>(of);
  }

  ipc::SharedSegment memory_;
  std::unique_ptr<Copies> copies_;
  // End of the charges reported so far.
  scheduler::TimePoint charged_until_{};
  RingReader<EventRing> events_;
  RingReader<NameRing> names_;
  std::unordered_map<Key, Name> known_;
  std::deque<Key> known_since_;  // Oldest first.
};

}  // namespace gpushared::trace

#endif  // GPUSHARED_SERVER_TELEMETRY_TRACE_READER_H_
