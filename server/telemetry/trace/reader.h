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

// Follows a trace from when it was opened. It never delays the writer: a reader that is late loses
// the oldest events, and is told how many.
//
// Thread-compatible.
class Reader {
 public:
  // `memory`: as a worker hands it out. kProtocolViolation for what is none, kVersionMismatch for
  // another layout.
  static Result<Reader> Open(ipc::UniqueFd memory);

  struct Progress {
    std::uint64_t events = 0;  // Told by this call.
    std::uint64_t lost = 0;    // Overwritten before this call came to them.
  };
  // Tells what was written until now, the oldest first. Commands are told as they leave the device,
  // requests as they end. Never waits; a call every 10 ms keeps up with any load.
  Progress Poll(const std::function<void(const Event&)>& tell);

  // What is known of a session; null: nothing, or not any more. Names come from clients: they are
  // printable UTF-8 of at most kNameBytesMax bytes, and nothing else is certain of them.
  const Name* GetClient(std::uint64_t session) const { return Find(Name::Of::kClient, session); }
  const Name* KernelFor(std::uint64_t kernel) const { return Find(Name::Of::kKernel, kernel); }
  // "gemm", "copy to device", or "kernel" where its name is not known.
  std::string GetWhat(const Slice& slice) const;

 private:
  static constexpr std::size_t kCopiesMax = 256;
  static constexpr std::size_t kNamesKeptMax = std::size_t{1} << 16;
  struct Copies {
    std::array<EventWords, kCopiesMax> events;
    std::array<NameWords, kCopiesMax> names;
  };
  using Key = std::uint64_t;  // Of a map; clients and kernels share it.

  explicit Reader(ipc::SharedSegment memory);
  void ReadNames();
  void ChargeBehindOthers(Slice& slice);
  void Keep(Name name);
  const Name* Find(Name::Of of, std::uint64_t key) const;
  static Key GetKey(Name::Of of, std::uint64_t key) {
    return key << 1 | static_cast<std::uint64_t>(of);
  }

  ipc::SharedSegment memory_;
  std::unique_ptr<Copies> copies_;
  // Where the charges told so far end.
  scheduler::TimePoint charged_until_{};
  RingReader<EventRing> events_;
  RingReader<NameRing> names_;
  std::unordered_map<Key, Name> known_;
  std::deque<Key> known_since_;  // The oldest first.
};

}  // namespace gpushared::trace

#endif  // GPUSHARED_SERVER_TELEMETRY_TRACE_READER_H_
