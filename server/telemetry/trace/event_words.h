// SPDX-License-Identifier: Apache-2.0
// Encoding of trace entries and names as words in shared memory.
//
// | words  | of a departure        | of a request | of a depth        |
// |--------|-----------------------|--------------|-------------------|
// | 0      | head                  | head         | head              |
// | 1, 2   | session, shape        | session      | session           |
// | 3, 4   | kernel                | number       | time              |
// | 5, 6   | record ended          | arrived      | queued, on device |
// | 7, 8   | request, depths       | begun        |                   |
// | 9, 10  | queued, submitted     | ended        |                   |
// | 11, 12 | started, device ended | target       |                   |
// | 13, 14 | charged, uncharged    |              |                   |
// | 15     | stop asked            |              |                   |
//
// The first of two words for one number has the lower half. HeadBits lists the fields of a head. A
// shape occupies the upper 16 bits of the session's two words, which are free because sessions are
// numbered from 1 and stay below 2^48. Depths have 16 bits each. Times are in nanoseconds. Times
// with one word are lower halves: a reader may rely on them being less than 2^31 ns away from the
// record's end. If a time of a departure is further away, all of its times are shifted, and its
// head records by how many bits.

#ifndef GPUSHARED_SERVER_TELEMETRY_TRACE_EVENT_WORDS_H_
#define GPUSHARED_SERVER_TELEMETRY_TRACE_EVENT_WORDS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "scheduler/types.h"
#include "server/telemetry/trace/event.h"
#include "server/telemetry/trace/layout.h"

namespace gpushared::trace {

// Data that only traces record, in addition to the ExecutionRecord, about a command that has left
// the device. Its times may disagree slightly with those of the record, because the device has a
// separate clock.
struct Departure {
  std::uint64_t kernel = 0;   // See Slice.
  std::uint64_t request = 0;  // See Slice; only the lower 32 bits are recorded.
  std::uint16_t shape = 0;    // See Slice.
  scheduler::SchedulingClass of_class = scheduler::SchedulingClass::kNormal;
  std::uint8_t stream = 0;
  bool has_failed = false;
  scheduler::TimePoint queued{};  // When the command was taken from the client or last preempted.
  scheduler::TimePoint ended{};   // According to the device.
  // Device time used so far by the commands that remain on the device.
  scheduler::Duration uncharged{};
  Depths left;  // Depths of its client.
};

struct HeadBits {
  enum class Kind : std::uint8_t { kNone, kDeparture, kRequest, kDepth };
  static constexpr unsigned kClass = 2, kPart = 4, kFailed = 5, kMarked = 6;
  static constexpr unsigned kStream = 8, kWork = 16, kCut = 20, kRow = 16, kShift = 24;
  static constexpr unsigned kShape = 16;  // Position of the shape in the upper word of the session.
  static constexpr std::uint32_t kDepthMax = 0xffff;  // Largest depth of a departure.
  // Leaves headroom for sums and differences of a few times.
  static constexpr unsigned kTimeBits = 61, kShiftMax = kTimeBits - 31;

  template <typename T>
  static constexpr Word Put(T value, unsigned bit) {
    return static_cast<Word>(value) << bit;
  }
};

// Calls `put(word, value)` for each word, with times shifted right by `shift` bits. Inlined,
// because the device thread does this once per command and the fields should not pass through
// memory.
template <typename Put>
[[gnu::always_inline]] inline void PutShifted(const ExecutionRecord& record,
                                              const Departure& departure, unsigned shift, Put put) {
  using Bits = HeadBits;
  const auto ns = [](scheduler::TimePoint at) {
    return static_cast<std::uint64_t>(at.time_since_epoch().count());
  };
  const auto upper = [](std::uint64_t value) { return static_cast<Word>(value >> 32); };
  const auto lower = [&](std::uint64_t time) { return static_cast<Word>(time >> shift); };
  put(0, Bits::Put(Bits::Kind::kDeparture, 0) | Bits::Put(departure.of_class, Bits::kClass) |
             Bits::Put(record.was_stopped, Bits::kPart) |
             Bits::Put(departure.has_failed, Bits::kFailed) |
             Bits::Put(departure.stream, Bits::kStream) | Bits::Put(record.work, Bits::kWork) |
             Bits::Put(record.cut, Bits::kCut) | Bits::Put(shift, Bits::kShift));
  put(1, static_cast<Word>(record.session));
  put(2, upper(record.session) | Bits::Put(departure.shape, Bits::kShape));
  put(3, static_cast<Word>(departure.kernel));
  put(4, upper(departure.kernel));
  put(5, static_cast<Word>(ns(record.ended)));
  put(6, upper(ns(record.ended)));
  put(7, static_cast<Word>(departure.request));
  put(8, Bits::Put(departure.left.queued, 16) | departure.left.on_device);
  put(9, lower(ns(departure.queued)));
  put(10, lower(ns(record.submitted)));
  put(11, lower(ns(record.started)));
  put(12, lower(ns(departure.ended)));
  put(13, lower(static_cast<std::uint64_t>(record.charged.count())));
  put(14, lower(static_cast<std::uint64_t>(departure.uncharged.count())));
  put(15, lower(ns(record.stop_asked)));
}
// Returns an upper bound on the durations that must fit in one word. Ignores `started` and `ended`,
// which are within these durations unless the device reports otherwise. Huge if the record ended
// before the command was queued or submitted.
inline std::uint64_t GetLongest(const ExecutionRecord& record, const Departure& departure) {
  return static_cast<std::uint64_t>((record.ended - departure.queued).count() |
                                    (record.ended - record.submitted).count() |
                                    record.charged.count() | departure.uncharged.count());
}
// Returns the words of a departure with times shifted by as few bits as necessary.
[[gnu::cold]] EventWords ShiftedWords(const ExecutionRecord& record, Departure departure);
template <typename Put>
[[gnu::always_inline]] inline void PutWords(const ExecutionRecord& record,
                                            const Departure& departure, Put put) {
  if (GetLongest(record, departure) >> 31 == 0) [[likely]]
    return PutShifted(record, departure, 0, put);
  const EventWords words = ShiftedWords(record, departure);
  for (std::size_t word = 0; word < words.size(); ++word) put(word, words[word]);
}
inline EventWords ToWords(const ExecutionRecord& record, const Departure& departure) {
  EventWords words;
  PutWords(record, departure, [&](std::size_t word, Word value) { words[word] = value; });
  return words;
}
EventWords ToWords(const Request& request);
EventWords ToWords(const Depth& depth);
// Returns nothing for words that no writer of this layout produces. A slice's charge starts as late
// as possible: only the time of the commands that remain on the device follows it.
std::optional<Event> FromWords(const EventWords& words);

// Truncates longer texts at a character boundary.
NameWords ToWords(Name::Of of, std::uint64_t key, std::int32_t pid, std::string_view text);
// Returns nothing for words that no writer of this layout produces. Unprintable bytes of the text
// become '?'.
std::optional<Name> FromWords(const NameWords& words);

}  // namespace gpushared::trace

#endif  // GPUSHARED_SERVER_TELEMETRY_TRACE_EVENT_WORDS_H_
