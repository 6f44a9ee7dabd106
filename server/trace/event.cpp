// SPDX-License-Identifier: Apache-2.0
#include "server/trace/event.h"

#include <algorithm>
#include <cstring>

#include "ipc/wire/bytes.h"

namespace gpushared::trace {
namespace {

using scheduler::Duration;
using scheduler::TimePoint;

enum class EventKind : std::uint8_t { kNone, kSlice, kRequest, kDepth };

// Parts of an event's first word.
constexpr unsigned kWorkShift = 8, kClassShift = 16, kStreamShift = 24, kCutShift = 32,
                   kRowShift = 40, kFlagsShift = 48;
constexpr std::uint64_t kPartFlag = 1, kFailedFlag = 2, kMarkedFlag = 4;

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

template <typename T>
constexpr std::uint64_t Put(T value, unsigned shift) {
  return static_cast<std::uint64_t>(value) << shift;
}
constexpr std::uint8_t Get(std::uint64_t word, unsigned shift) {
  return static_cast<std::uint8_t>(word >> shift);
}

std::uint64_t DepthsWord(const Depths& depths) {
  return std::uint64_t{depths.queued} << 32 | depths.on_device;
}
Depths DepthsOf(std::uint64_t word) {
  return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
}

// So that sums and differences of a few of them fit.
bool AreTimes(const EventWords& words, std::size_t from, std::size_t to) {
  constexpr std::uint64_t kNsMax = std::uint64_t{1} << 61;
  return std::all_of(words.begin() + static_cast<std::ptrdiff_t>(from),
                     words.begin() + static_cast<std::ptrdiff_t>(to),
                     [](std::uint64_t ns) { return ns < kNsMax; });
}

std::optional<Event> SliceOf(const EventWords& words, scheduler::SchedulingClass of_class) {
  const std::uint64_t head = words[0];
  const std::uint8_t work = Get(head, kWorkShift), cut = Get(head, kCutShift);
  const bool is_known = work <= static_cast<std::uint8_t>(Work::kFill) &&
                        cut <= static_cast<std::uint8_t>(Cut::kHighClass) && AreTimes(words, 4, 11);
  if (!is_known) return {};
  const std::uint64_t flags = head >> kFlagsShift;
  return Slice{.session = words[1],
               .kernel = words[2],
               .request = words[3],
               .work = static_cast<Work>(work),
               .cut = static_cast<Cut>(cut),
               .of_class = of_class,
               .stream = Get(head, kStreamShift),
               .is_part = (flags & kPartFlag) != 0,
               .has_failed = (flags & kFailedFlag) != 0,
               .waited = DurationOf(words[4]),
               .submitted = TimeOf(words[5]),
               .started = TimeOf(words[6]),
               .ended = TimeOf(words[7]),
               .stop_asked = TimeOf(words[8]),
               .charged_from = TimeOf(words[9]),
               .charged = DurationOf(words[10]),
               .left = DepthsOf(words[11])};
}

std::optional<Event> RequestOf(const EventWords& words, scheduler::SchedulingClass of_class) {
  if (!AreTimes(words, 3, 7)) return {};
  const std::uint64_t flags = words[0] >> kFlagsShift;
  Request request{.session = words[1],
                  .number = words[2],
                  .of_class = of_class,
                  .row = Get(words[0], kRowShift),
                  .stream = {},
                  .has_failed = (flags & kFailedFlag) != 0,
                  .arrived = TimeOf(words[3]),
                  .begun = TimeOf(words[4]),
                  .ended = TimeOf(words[5]),
                  .promise = DurationOf(words[6])};
  if ((flags & kMarkedFlag) != 0) request.stream = Get(words[0], kStreamShift);
  return request;
}

}  // namespace

EventWords ToWords(const Slice& slice) {
  return {
      Put(EventKind::kSlice, 0) | Put(slice.work, kWorkShift) | Put(slice.of_class, kClassShift) |
          Put(slice.stream, kStreamShift) | Put(slice.cut, kCutShift) |
          Put((slice.is_part ? kPartFlag : 0) | (slice.has_failed ? kFailedFlag : 0), kFlagsShift),
      slice.session,
      slice.kernel,
      slice.request,
      Ns(slice.waited),
      Ns(slice.submitted),
      Ns(slice.started),
      Ns(slice.ended),
      Ns(slice.stop_asked),
      Ns(slice.charged_from),
      Ns(slice.charged),
      DepthsWord(slice.left)};
}

EventWords ToWords(const Request& request) {
  return {Put(EventKind::kRequest, 0) | Put(request.of_class, kClassShift) |
              Put(request.stream.value_or(0), kStreamShift) | Put(request.row, kRowShift) |
              Put((request.stream ? kMarkedFlag : 0) | (request.has_failed ? kFailedFlag : 0),
                  kFlagsShift),
          request.session,
          request.number,
          Ns(request.arrived),
          Ns(request.begun),
          Ns(request.ended),
          Ns(request.promise)};
}

EventWords ToWords(const Depth& depth) {
  return {Put(EventKind::kDepth, 0) | Put(depth.of_class, kClassShift), depth.session, Ns(depth.at),
          DepthsWord(depth.depths)};
}

std::optional<Event> FromWords(const EventWords& words) {
  const std::uint8_t class_byte = Get(words[0], kClassShift);
  if (class_byte >= scheduler::kSchedulingClasses) return {};
  const auto of_class = static_cast<scheduler::SchedulingClass>(class_byte);
  switch (static_cast<EventKind>(words[0] & 0xff)) {
    case EventKind::kSlice:
      return SliceOf(words, of_class);
    case EventKind::kRequest:
      return RequestOf(words, of_class);
    case EventKind::kDepth:
      if (!AreTimes(words, 2, 3)) return {};
      return Depth{.session = words[1],
                   .of_class = of_class,
                   .at = TimeOf(words[2]),
                   .depths = DepthsOf(words[3])};
    case EventKind::kNone:
      break;
  }
  return {};
}

NameWords ToWords(Name::Of of, std::uint64_t key, std::int32_t pid, std::string_view text) {
  text = ipc::CutText(text, kNameBytesMax);
  NameWords words{};
  words[0] =
      Put(of, 0) | Put(text.size(), kBytesShift) | Put(static_cast<std::uint32_t>(pid), kPidShift);
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

std::string_view WorkText(Work work) {
  switch (work) {
    case Work::kLaunch:
      return "kernel";
    case Work::kCopyToDevice:
      return "copy to device";
    case Work::kCopyToHost:
      return "copy to host";
    case Work::kCopyOnDevice:
      return "copy on device";
    case Work::kFill:
      return "fill";
  }
  return "";
}

}  // namespace gpushared::trace
