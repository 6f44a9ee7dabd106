// SPDX-License-Identifier: Apache-2.0
#include "server/trace/event_words.h"

#include <algorithm>
#include <cstring>

#include "ipc/wire/bytes.h"

namespace gpushared::trace {
namespace {

using scheduler::Duration;
using scheduler::TimePoint;

using Bits = HeadBits;
using Kind = HeadBits::Kind;

// Parts of a name's first word.
constexpr unsigned kBytesShift = 8, kPidShift = 32;
constexpr std::size_t kTextWord = 2;
static_assert((kNameWords - kTextWord) * sizeof(std::uint64_t) >= kNameBytesMax);

std::uint64_t Ns(TimePoint at) {
  return static_cast<std::uint64_t>(Duration(at.time_since_epoch()).count());
}
std::uint64_t Ns(Duration time) { return static_cast<std::uint64_t>(time.count()); }
Duration DurationOf(std::uint64_t ns) { return Duration(static_cast<std::int64_t>(ns)); }
TimePoint TimeOf(std::uint64_t ns) { return TimePoint(DurationOf(ns)); }

constexpr std::uint8_t Get(std::uint64_t word, unsigned bit) {
  return static_cast<std::uint8_t>(word >> bit);
}
constexpr bool Has(std::uint64_t word, unsigned flag) { return (word >> flag & 1) != 0; }

std::uint64_t DepthsWord(const Depths& depths) {
  return std::uint64_t{depths.queued} << 32 | depths.on_device;
}
Depths DepthsOf(std::uint64_t word) {
  return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
}

// So that sums and differences of a few of them fit.
bool AreTimes(const EventWords& words, std::size_t from, std::size_t to) {
  constexpr std::uint64_t kNsMax = std::uint64_t{1} << Bits::kTimeBits;
  return std::all_of(words.begin() + static_cast<std::ptrdiff_t>(from),
                     words.begin() + static_cast<std::ptrdiff_t>(to),
                     [](std::uint64_t ns) { return ns < kNsMax; });
}

// Two times of a slice that share a word.
struct Pair {
  std::uint64_t word;
  int shift;

  Duration high() const { return DurationOf(word >> 32 << shift); }
  Duration low() const {
    return DurationOf(std::uint64_t{static_cast<std::uint32_t>(word)} << shift);
  }
  Duration signed_low() const {
    return Duration(std::int64_t{static_cast<std::int32_t>(word)} << shift);
  }
};

std::optional<Event> SliceOf(const EventWords& words, scheduler::SchedulingClass of_class) {
  const std::uint64_t head = words[0];
  const std::uint8_t work = Get(head, Bits::kWork) & 0xf, cut = Get(head, Bits::kCut) & 0xf;
  const int shift = Get(head, Bits::kShift);
  const bool is_known = work <= static_cast<std::uint8_t>(Work::kGraph) &&
                        cut <= static_cast<std::uint8_t>(Cut::kHighClass) &&
                        shift <= static_cast<int>(Bits::kShiftMax) && AreTimes(words, 4, 5);
  if (!is_known) return {};
  const TimePoint submitted = TimeOf(words[4]);
  const Pair on_device{words[5], shift}, amounts{words[6], shift}, others{words[7], shift};
  if (submitted + others.signed_low() < TimePoint{}) return {};
  return Slice{.session = words[1] & ((std::uint64_t{1} << Bits::kShape) - 1),
               .kernel = words[2],
               .request = words[3],
               .shape = static_cast<std::uint16_t>(words[1] >> Bits::kShape),
               .work = static_cast<Work>(work),
               .cut = static_cast<Cut>(cut),
               .of_class = of_class,
               .stream = Get(head, Bits::kStream),
               .is_part = Has(head, Bits::kPart),
               .has_failed = Has(head, Bits::kFailed),
               .waited = amounts.high(),
               .submitted = submitted,
               .started = submitted + on_device.high(),
               .ended = submitted + on_device.low(),
               .stop_asked =
                   static_cast<Cut>(cut) == Cut::kStopped ? submitted + others.high() : TimePoint{},
               .charged_from = submitted + others.signed_low(),
               .charged = amounts.low(),
               .left = {.queued = static_cast<std::uint16_t>(head >> Bits::kQueued),
                        .on_device = static_cast<std::uint16_t>(head >> Bits::kOnDevice)}};
}

std::optional<Event> RequestOf(const EventWords& words, scheduler::SchedulingClass of_class) {
  if (!AreTimes(words, 3, 7)) return {};
  const std::uint64_t head = words[0];
  Request request{.session = words[1],
                  .number = words[2],
                  .of_class = of_class,
                  .row = Get(head, Bits::kRow),
                  .stream = {},
                  .has_failed = Has(head, Bits::kFailed),
                  .arrived = TimeOf(words[3]),
                  .begun = TimeOf(words[4]),
                  .ended = TimeOf(words[5]),
                  .promise = DurationOf(words[6])};
  if (Has(head, Bits::kMarked)) request.stream = Get(head, Bits::kStream);
  return request;
}

}  // namespace

EventWords ToWords(const Request& request) {
  return {Bits::Put(Kind::kRequest, 0) | Bits::Put(request.of_class, Bits::kClass) |
              Bits::Put(request.has_failed, Bits::kFailed) |
              Bits::Put(request.stream.has_value(), Bits::kMarked) |
              Bits::Put(request.stream.value_or(0), Bits::kStream) |
              Bits::Put(request.row, Bits::kRow),
          request.session,
          request.number,
          Ns(request.arrived),
          Ns(request.begun),
          Ns(request.ended),
          Ns(request.promise)};
}

EventWords ToWords(const Depth& depth) {
  return {Bits::Put(Kind::kDepth, 0) | Bits::Put(depth.of_class, Bits::kClass), depth.session,
          Ns(depth.at), DepthsWord(depth.depths)};
}

std::optional<Event> FromWords(const EventWords& words) {
  const std::uint8_t class_bits = Get(words[0], Bits::kClass) & 3;
  if (class_bits >= scheduler::kSchedulingClasses) return {};
  const auto of_class = static_cast<scheduler::SchedulingClass>(class_bits);
  switch (static_cast<Kind>(words[0] & 3)) {
    case Kind::kSlice:
      return SliceOf(words, of_class);
    case Kind::kRequest:
      return RequestOf(words, of_class);
    case Kind::kDepth:
      if (!AreTimes(words, 2, 3)) return {};
      return Depth{.session = words[1],
                   .of_class = of_class,
                   .at = TimeOf(words[2]),
                   .depths = DepthsOf(words[3])};
    case Kind::kNone:
      break;
  }
  return {};
}

NameWords ToWords(Name::Of of, std::uint64_t key, std::int32_t pid, std::string_view text) {
  text = ipc::CutText(text, kNameBytesMax);
  NameWords words{};
  words[0] = Bits::Put(of, 0) | Bits::Put(text.size(), kBytesShift) |
             Bits::Put(static_cast<std::uint32_t>(pid), kPidShift);
  words[1] = key;
  std::memcpy(&words[kTextWord], text.data(), text.size());
  return words;
}

std::optional<Name> FromWords(const NameWords& words) {
  const std::uint8_t of = Get(words[0], 0), bytes = Get(words[0], kBytesShift);
  if (of > static_cast<std::uint8_t>(Name::Of::kKernel) || bytes > kNameBytesMax) return {};
  Name name{.of = static_cast<Name::Of>(of),
            .key = words[1],
            .pid = static_cast<std::int32_t>(words[0] >> kPidShift),
            .text = std::string(bytes, '\0')};
  std::memcpy(name.text.data(), &words[kTextWord], bytes);
  if (ipc::IsPrintableText(name.text)) return name;
  std::ranges::replace_if(
      name.text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

}  // namespace gpushared::trace
