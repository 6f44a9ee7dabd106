// SPDX-License-Identifier: Apache-2.0
#include "server/telemetry/trace/event_words.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ipc/wire/bytes.h"

namespace gpushared::trace {
namespace {

using scheduler::Duration;
using scheduler::TimePoint;

using Bits = HeadBits;
using Kind = HeadBits::Kind;

// Words of a name: kind and length, process id, key, text.
constexpr unsigned kBytesShift = 8;
constexpr std::size_t kTextWord = 4;
static_assert((kNameWords - kTextWord) * sizeof(Word) >= kNameBytesMax);

std::uint64_t Ns(TimePoint at) {
  return static_cast<std::uint64_t>(Duration(at.time_since_epoch()).count());
}
std::uint64_t Ns(Duration time) { return static_cast<std::uint64_t>(time.count()); }
Duration GetDuration(std::uint64_t ns) { return Duration(static_cast<std::int64_t>(ns)); }
TimePoint GetTime(std::uint64_t ns) { return TimePoint(GetDuration(ns)); }

constexpr std::uint8_t Get(Word word, unsigned bit) {
  return static_cast<std::uint8_t>(word >> bit);
}
constexpr bool Has(Word word, unsigned flag) { return (word >> flag & 1) != 0; }

// Returns the number whose lower half is the word and whose upper half is the next word.
template <typename Words>
std::uint64_t At(const Words& words, std::size_t word) {
  return std::uint64_t{words[word + 1]} << 32 | words[word];
}
template <typename Words>
void PutAt(Words& words, std::size_t word, std::uint64_t value) {
  words[word] = static_cast<Word>(value);
  words[word + 1] = static_cast<Word>(value >> 32);
}

// Checks the range of times so that sums and differences of a few of them do not overflow. `end` is
// exclusive.
bool AreTimes(const EventWords& words, std::size_t first, std::size_t end) {
  constexpr std::uint64_t kNsMax = std::uint64_t{1} << Bits::kTimeBits;
  for (; first < end; first += 2) {
    if (At(words, first) >= kNsMax) return false;
  }
  return true;
}

std::optional<Event> GetEvent(const EventWords& words, scheduler::SchedulingClass of_class) {
  const Word head = words[0];
  const std::uint8_t work = Get(head, Bits::kWork) & 0xf, cut = Get(head, Bits::kCut) & 0xf;
  const unsigned shift = Get(head, Bits::kShift);
  const bool is_known = work <= static_cast<std::uint8_t>(Work::kTurn) &&
                        cut <= static_cast<std::uint8_t>(Cut::kSlowForm) &&
                        shift <= Bits::kShiftMax && AreTimes(words, 5, 7);
  if (!is_known) return {};
  const std::uint64_t left_shifted = At(words, 5) >> shift;
  const auto length = [&](std::size_t word) {
    return GetDuration(std::uint64_t{words[word]} << shift);
  };
  // Reconstructs a time from its lower half, as the time nearest to `left_at`.
  const auto time = [&](std::size_t word) {
    const auto before = static_cast<std::int32_t>(static_cast<Word>(left_shifted) - words[word]);
    return TimePoint(
        Duration((static_cast<std::int64_t>(left_shifted) - before) * (std::int64_t{1} << shift)));
  };
  const TimePoint left_at = GetTime(left_shifted << shift);
  const TimePoint queued = time(9), submitted = time(10);
  Slice slice{.session = At(words, 1) & ((std::uint64_t{1} << (32 + Bits::kShape)) - 1),
              .kernel = At(words, 3),
              .request = words[7],
              .shape = static_cast<std::uint16_t>(words[2] >> Bits::kShape),
              .work = static_cast<Work>(work),
              .cut = static_cast<Cut>(cut),
              .of_class = of_class,
              .stream = Get(head, Bits::kStream),
              .is_part = Has(head, Bits::kPart),
              .has_failed = Has(head, Bits::kFailed),
              .waited = std::max(submitted - queued, Duration::zero()),
              .submitted = submitted,
              .started = std::min(std::max(time(11), submitted), left_at),
              .charged_from = left_at - length(14) - length(13),
              .charged = length(13),
              .left = {.queued = words[8] >> 16, .on_device = words[8] & Bits::kDepthMax}};
  slice.ended = std::max(slice.started, std::min(time(12), left_at));
  if (slice.cut == Cut::kStopped) slice.stop_asked = time(15);
  // No clock shows a time before zero.
  if (std::min({submitted, queued, slice.charged_from}) < TimePoint{}) return {};
  return slice;
}

std::optional<Event> GetRequest(const EventWords& words, scheduler::SchedulingClass of_class) {
  if (!AreTimes(words, 5, 13)) return {};
  const Word head = words[0];
  Request request{.session = At(words, 1),
                  .number = At(words, 3),
                  .of_class = of_class,
                  .row = Get(head, Bits::kRow),
                  .stream = {},
                  .has_failed = Has(head, Bits::kFailed),
                  .arrived = GetTime(At(words, 5)),
                  .begun = GetTime(At(words, 7)),
                  .ended = GetTime(At(words, 9)),
                  .target = GetDuration(At(words, 11))};
  if (Has(head, Bits::kMarked)) request.stream = Get(head, Bits::kStream);
  return request;
}

}  // namespace

EventWords ShiftedWords(const ExecutionRecord& record, Departure departure) {
  // The clocks may disagree, so the time is clamped to the command's submission.
  departure.queued = std::min(departure.queued, record.submitted);
  EventWords words;
  const unsigned bits = static_cast<unsigned>(std::bit_width(GetLongest(record, departure)));
  PutShifted(record, departure, std::max(bits, 31U) - 31,
             [&](std::size_t word, Word value) { words[word] = value; });
  return words;
}

EventWords ToWords(const Request& request) {
  EventWords words{};
  words[0] = Bits::Put(Kind::kRequest, 0) | Bits::Put(request.of_class, Bits::kClass) |
             Bits::Put(request.has_failed, Bits::kFailed) |
             Bits::Put(request.stream.has_value(), Bits::kMarked) |
             Bits::Put(request.stream.value_or(0), Bits::kStream) |
             Bits::Put(request.row, Bits::kRow);
  PutAt(words, 1, request.session);
  PutAt(words, 3, request.number);
  PutAt(words, 5, Ns(request.arrived));
  PutAt(words, 7, Ns(request.begun));
  PutAt(words, 9, Ns(request.ended));
  PutAt(words, 11, Ns(request.target));
  return words;
}

EventWords ToWords(const Depth& depth) {
  EventWords words{};
  words[0] = Bits::Put(Kind::kDepth, 0) | Bits::Put(depth.of_class, Bits::kClass);
  PutAt(words, 1, depth.session);
  PutAt(words, 3, Ns(depth.at));
  words[5] = depth.depths.queued;
  words[6] = depth.depths.on_device;
  return words;
}

std::optional<Event> FromWords(const EventWords& words) {
  const std::uint8_t class_bits = Get(words[0], Bits::kClass) & 3;
  if (class_bits >= scheduler::kSchedulingClasses) return {};
  const auto of_class = static_cast<scheduler::SchedulingClass>(class_bits);
  switch (static_cast<Kind>(words[0] & 3)) {
    case Kind::kDeparture:
      return GetEvent(words, of_class);
    case Kind::kRequest:
      return GetRequest(words, of_class);
    case Kind::kDepth:
      if (!AreTimes(words, 3, 5)) return {};
      return Depth{.session = At(words, 1),
                   .of_class = of_class,
                   .at = GetTime(At(words, 3)),
                   .depths = {.queued = words[5], .on_device = words[6]}};
    case Kind::kNone:
      break;
  }
  return {};
}

NameWords ToWords(Name::Of of, std::uint64_t key, std::int32_t pid, std::string_view text) {
  text = ipc::CutText(text, kNameBytesMax);
  NameWords words{};
  words[0] = Bits::Put(of, 0) | Bits::Put(text.size(), kBytesShift);
  words[1] = static_cast<Word>(pid);
  PutAt(words, 2, key);
  std::memcpy(&words[kTextWord], text.data(), text.size());
  return words;
}

std::optional<Name> FromWords(const NameWords& words) {
  const std::uint8_t of = Get(words[0], 0), bytes = Get(words[0], kBytesShift);
  if (of > static_cast<std::uint8_t>(Name::Of::kKernel) || bytes > kNameBytesMax) return {};
  Name name{.of = static_cast<Name::Of>(of),
            .key = At(words, 2),
            .pid = static_cast<std::int32_t>(words[1]),
            .text = std::string(bytes, '\0')};
  std::memcpy(name.text.data(), &words[kTextWord], bytes);
  if (ipc::IsPrintableText(name.text)) return name;
  std::ranges::replace_if(
      name.text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

}  // namespace gpushared::trace
