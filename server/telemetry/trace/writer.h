// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TELEMETRY_TRACE_WRITER_H_
#define GPUSHARED_SERVER_TELEMETRY_TRACE_WRITER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "gpushared/result.h"

#include "ipc/shared_segment.h"
#include "ipc/unique_fd.h"
#include "server/telemetry/trace/event_words.h"
#include "server/telemetry/trace/layout.h"

namespace gpushared::trace {

// Owns the memory of a trace and its writing end. Writing takes no lock, system call or allocation,
// and never waits for a reader. Other processes have read-only access to the memory.
//
// Thread-compatible: may be handed to the thread that writes.
class Writer {
 public:
  // Takes milliseconds, because it populates the pages of the memory.
  static Result<std::unique_ptr<Writer>> Create();

  // Returns a read-only descriptor for a reader.
  Result<ipc::UniqueFd> ShareMemory() const;

  // Inlined, so that the fields of `departure` need not pass through memory.
  [[gnu::always_inline]] void Write(const ExecutionRecord& record, const Departure& departure) {
    events_.Fill([&](auto put) { PutWords(record, departure, put); });
  }
  void Write(const Request& request) { events_.Write(ToWords(request)); }
  void Write(const Depth& depth) { events_.Write(ToWords(depth)); }

  // Returns true if a kernel's name was written and probably is still in the ring: its key has not
  // been dropped since. The name must be written before the first departure that refers to it.
  bool KnowsKernel(std::uint64_t key) {
    if (asked_[GetAskedIndex(key)] == key) [[likely]]
      return true;
    return LookUpKernel(key);
  }
  void NameKernel(std::uint64_t key, std::string_view name);
  void NameClient(std::uint64_t session, std::int32_t pid, std::string_view name) {
    names_.Write(ToWords(Name::Of::kClient, session, pid, name));
  }

 private:
  // As many keys as the ring has names, so that by the time a name is overwritten, its key has
  // normally been dropped and the name is written again.
  static constexpr std::size_t kSets = kNamesMax / 4;
  using Set = std::array<std::uint64_t, 4>;

  // Direct-mapped cache of recently queried keys. Kernels of one module map to different entries.
  static constexpr std::size_t kAskedMax = 256;

  explicit Writer(ipc::SharedSegment memory);
  static std::size_t GetAskedIndex(std::uint64_t key) { return (key + (key >> 20)) % kAskedMax; }
  bool LookUpKernel(std::uint64_t key);
  static std::size_t GetIndex(std::uint64_t key) {
    return static_cast<std::size_t>((key * 0x9e37'79b9'7f4a'7c15U) >> 54) % kSets;
  }

  ipc::SharedSegment memory_;
  RingWriter<EventRing> events_;
  RingWriter<NameRing> names_;
  std::array<Set, kSets> known_{};
  std::array<std::uint64_t, kAskedMax> asked_{};  // Known keys, or zero.
};

}  // namespace gpushared::trace

#endif  // GPUSHARED_SERVER_TELEMETRY_TRACE_WRITER_H_
