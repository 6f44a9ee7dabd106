// SPDX-License-Identifier: Apache-2.0
// Events and names as words in shared memory.
//
// | word | of a slice               | of a request | of a depth        |
// |------|--------------------------|--------------|-------------------|
// | 0    | head                     | head         | head              |
// | 1    | shape, session           | session      | session           |
// | 2    | kernel                   | number       | time              |
// | 3    | request                  | arrived      | queued, on device |
// | 4    | submitted                | begun        |                   |
// | 5    | started, ended           | ended        |                   |
// | 6    | waited, charged          | promise      |                   |
// | 7    | stop asked, charged from |              |                   |
//
// HeadBits lists the parts of a head. A shape has the upper 16 bits of its word, since sessions
// count from 1. Times are nanoseconds. Two times in one word have 32 bits each, and points in time
// count from `submitted`. A head says by how many bits all of them were shifted to fit: by none
// where they are below 2 s.

#ifndef GPUSHARED_SERVER_TRACE_EVENT_WORDS_H_
#define GPUSHARED_SERVER_TRACE_EVENT_WORDS_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

#include "scheduler/types.h"
#include "server/trace/event.h"
#include "server/trace/layout.h"

namespace gpushared::trace {

struct HeadBits {
  enum class Kind : std::uint8_t { kNone, kSlice, kRequest, kDepth };
  static constexpr unsigned kClass = 2, kPart = 4, kFailed = 5, kMarked = 6;
  static constexpr unsigned kStream = 8, kWork = 16, kCut = 20, kRow = 16, kShift = 24;
  static constexpr unsigned kQueued = 32, kOnDevice = 48;
  static constexpr unsigned kShape = 48;              // In the word of the session.
  static constexpr std::uint32_t kDepthMax = 0xffff;  // In a head.
  // Sums and differences of a few times fit.
  static constexpr unsigned kTimeBits = 61, kShiftMax = kTimeBits - 32;

  template <typename T>
  static constexpr std::uint64_t Put(T value, unsigned bit) {
    return static_cast<std::uint64_t>(value) << bit;
  }
};

// Inline, since the device thread makes one per command.
inline EventWords ToWords(const Slice& slice) {
  using Bits = HeadBits;
  const auto since = [&](scheduler::TimePoint at) { return (at - slice.submitted).count(); };
  const auto pair = [](std::int64_t high, std::int64_t low) {
    return Bits::Put(high, 32) | static_cast<std::uint32_t>(low);
  };
  const std::int64_t started = since(slice.started), ended = since(slice.ended);
  const std::int64_t waited = slice.waited.count(), charged = slice.charged.count();
  const std::int64_t stop_asked = slice.cut == Cut::kStopped ? since(slice.stop_asked) : 0;
  const std::int64_t from = since(slice.charged_from);
  const auto longest = static_cast<std::uint64_t>(started | ended | waited | charged | stop_asked) |
                       static_cast<std::uint64_t>(from ^ (from >> 63)) << 1;
  const auto words = [&](int shift) {
    // Charges are rounded to the inside, so that they do not overlap.
    const std::int64_t from_up = -(-from >> shift);
    const std::int64_t charged_down = ((from + charged) >> shift) - from_up;
    return EventWords{
        Bits::Put(Bits::Kind::kSlice, 0) | Bits::Put(slice.of_class, Bits::kClass) |
            Bits::Put(slice.is_part, Bits::kPart) | Bits::Put(slice.has_failed, Bits::kFailed) |
            Bits::Put(slice.stream, Bits::kStream) | Bits::Put(slice.work, Bits::kWork) |
            Bits::Put(slice.cut, Bits::kCut) | Bits::Put(shift, Bits::kShift) |
            Bits::Put(static_cast<std::uint16_t>(slice.left.queued), Bits::kQueued) |
            Bits::Put(slice.left.on_device, Bits::kOnDevice),
        slice.session | Bits::Put(slice.shape, Bits::kShape),
        slice.kernel,
        slice.request,
        static_cast<std::uint64_t>(slice.submitted.time_since_epoch().count()),
        pair(started >> shift, ended >> shift),
        pair(waited >> shift, std::max<std::int64_t>(charged_down, 0)),
        pair(stop_asked >> shift, from_up)};
  };
  if (longest >> 32 == 0) [[likely]]
    return words(0);
  return words(static_cast<int>(std::bit_width(longest)) - 32);
}
EventWords ToWords(const Request& request);
EventWords ToWords(const Depth& depth);
// Empty for words that no writer of this layout makes.
std::optional<Event> FromWords(const EventWords& words);

// A longer text is cut at a character.
NameWords ToWords(Name::Of of, std::uint64_t key, std::int32_t pid, std::string_view text);
// Empty as above. Bytes of the text that are not fit to be shown become '?'.
std::optional<Name> FromWords(const NameWords& words);

}  // namespace gpushared::trace

#endif  // GPUSHARED_SERVER_TRACE_EVENT_WORDS_H_
