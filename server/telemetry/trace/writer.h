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

// The memory of a trace and its writing end. Writing takes no lock, no system call and no
// allocation, and waits for no reader. Others can only read the memory.
//
// Thread-compatible: whoever made it may hand it to the thread that writes.
class Writer {
 public:
  // Takes milliseconds: the memory's pages are made here.
  static Result<std::unique_ptr<Writer>> Create();

  // For a reader.
  Result<ipc::UniqueFd> ShareMemory() const;

  // Inlined, so that the fields of `departure` need not pass through memory.
  [[gnu::always_inline]] void Write(const ExecutionRecord& record, const Departure& departure) {
    events_.Fill([&](auto put) { PutWords(record, departure, put); });
  }
  void Write(const Request& request) { events_.Write(ToWords(request)); }
  void Write(const Depth& depth) { events_.Write(ToWords(depth)); }

  // Whether a kernel's name was written and not forgotten since. It is to be written before the
  // first departure that means it.
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
  // As many as the ring of names holds. One that was forgotten is written again.
  static constexpr std::size_t kSets = kNamesMax / 4;
  using Set = std::array<std::uint64_t, 4>;

  // Each key has one place among those asked for last. Kernels of one module have different ones.
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
  std::array<std::uint64_t, kAskedMax> asked_{};  // All known, but for zeros.
};

}  // namespace gpushared::trace

#endif  // GPUSHARED_SERVER_TELEMETRY_TRACE_WRITER_H_
