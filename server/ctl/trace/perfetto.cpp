// SPDX-License-Identifier: Apache-2.0
// Numbers of fields: https://github.com/google/perfetto, protos/perfetto/trace.
#include "server/ctl/trace/perfetto.h"

#include <time.h>

#include <bit>
#include <variant>

namespace gpushared::server {

namespace {

// Fields of Trace and TracePacket.
constexpr std::uint32_t kPacket = 1, kClockSnapshot = 6, kTimestamp = 8, kSequence = 10,
                        kTrackEvent = 11, kInternedData = 12, kSequenceFlags = 13,
                        kPacketDefaults = 59, kTrackDescriptor = 60;
// Fields of TracePacketDefaults.
constexpr std::uint32_t kDefaultClock = 58;
// Fields of ClockSnapshot and its clocks.
constexpr std::uint32_t kClocks = 1, kPrimaryClock = 2, kClockId = 1, kClockValue = 2;
constexpr std::uint64_t kRealtime = 1, kMonotonic = 3, kBoottime = 6;
// Of TrackDescriptor; CounterDescriptor.
constexpr std::uint32_t kTrackUuid = 1, kTrackName = 2, kTrackParent = 5, kTrackCounter = 8;
constexpr std::uint32_t kCounterUnitName = 6;
// Fields of TrackEvent.
constexpr std::uint32_t kEventAnnotations = 4, kEventType = 9, kEventNameId = 10, kEventTrack = 11,
                        kEventName = 23, kEventCounter = 30, kEventFlows = 47;
constexpr std::uint64_t kBegin = 1, kEnd = 2, kInstant = 3, kCounter = 4;
// Of DebugAnnotation; InternedData.
constexpr std::uint32_t kAnnotationNameId = 1, kAnnotationUint = 3, kAnnotationDouble = 5,
                        kAnnotationString = 6;
constexpr std::uint32_t kInternedEventNames = 2, kInternedAnnotationNames = 3;
constexpr std::uint32_t kInternedId = 1, kInternedName = 2;

constexpr std::uint64_t kOurSequence = 1;
constexpr std::uint64_t kStateCleared = 1, kNeedsState = 2;

// ---- protobuf's wire format

void PutVarint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}
void PutNumber(std::string& to, std::uint32_t field, std::uint64_t value) {
  PutVarint(to, std::uint64_t{field} << 3);
  PutVarint(to, value);
}
void PutFixed(std::string& to, std::uint32_t field, std::uint64_t value) {
  PutVarint(to, std::uint64_t{field} << 3 | 1);
  for (int i = 0; i < 8; ++i) to += static_cast<char>(value >> (8 * i));
}
void PutBytes(std::string& to, std::uint32_t field, std::string_view bytes) {
  PutVarint(to, std::uint64_t{field} << 3 | 2);
  PutVarint(to, bytes.size());
  to += bytes;
}

std::string ClockOf(std::uint64_t id, std::chrono::nanoseconds time) {
  std::string clock;
  PutNumber(clock, kClockId, id);
  PutNumber(clock, kClockValue, static_cast<std::uint64_t>(time.count()));
  return clock;
}

std::chrono::nanoseconds ClockTime(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

std::string EventOn(std::uint64_t track, std::uint64_t type) {
  std::string event;
  PutNumber(event, kEventType, type);
  PutNumber(event, kEventTrack, track);
  return event;
}

}  // namespace

PerfettoEncoder::Clocks PerfettoEncoder::Clocks::Now() {
  return {.monotonic = ClockTime(CLOCK_MONOTONIC),
          .boottime = ClockTime(CLOCK_BOOTTIME),
          .realtime = ClockTime(CLOCK_REALTIME)};
}

PerfettoEncoder::PerfettoEncoder(const Clocks& clocks) {
  std::string snapshot, defaults, packet;
  PutBytes(snapshot, kClocks, ClockOf(kMonotonic, clocks.monotonic));
  PutBytes(snapshot, kClocks, ClockOf(kBoottime, clocks.boottime));
  PutBytes(snapshot, kClocks, ClockOf(kRealtime, clocks.realtime));
  PutNumber(snapshot, kPrimaryClock, kMonotonic);
  PutNumber(defaults, kDefaultClock, kMonotonic);
  PutBytes(packet, kClockSnapshot, snapshot);
  PutNumber(packet, kSequence, kOurSequence);
  PutNumber(packet, kSequenceFlags, kStateCleared);
  PutBytes(packet, kPacketDefaults, defaults);
  AddPacket(packet);
}

void PerfettoEncoder::AddPacket(std::string_view packet) { PutBytes(bytes_, kPacket, packet); }

std::uint64_t PerfettoEncoder::Intern(Names& names, std::uint32_t field, std::string_view name,
                                      std::string& interned) {
  const auto found = names.find(name);
  if (found != names.end()) return found->second;
  if (names.size() >= kNamesMax) return 0;
  const std::uint64_t id = names.size() + 1;
  names.emplace(name, id);
  std::string entry;
  PutNumber(entry, kInternedId, id);
  PutBytes(entry, kInternedName, name);
  PutBytes(interned, field, entry);
  return id;
}

void PerfettoEncoder::AddEvent(scheduler::TimePoint at, std::string_view event,
                               std::string_view interned) {
  std::string packet;
  PutNumber(packet, kTimestamp, static_cast<std::uint64_t>(at.time_since_epoch().count()));
  PutNumber(packet, kSequence, kOurSequence);
  PutNumber(packet, kSequenceFlags, kNeedsState);
  if (!interned.empty()) PutBytes(packet, kInternedData, interned);
  PutBytes(packet, kTrackEvent, event);
  AddPacket(packet);
}

void PerfettoEncoder::AddTrack(const Track& track) {
  std::string descriptor, packet;
  PutNumber(descriptor, kTrackUuid, track.id);
  PutBytes(descriptor, kTrackName, track.name);
  if (track.parent != 0) PutNumber(descriptor, kTrackParent, track.parent);
  if (track.kind == Track::Kind::kCounter) {
    std::string counter;
    PutBytes(counter, kCounterUnitName, "commands");
    PutBytes(descriptor, kTrackCounter, counter);
  }
  PutNumber(packet, kSequence, kOurSequence);
  PutBytes(packet, kTrackDescriptor, descriptor);
  AddPacket(packet);
}

void PerfettoEncoder::AddSlice(std::uint64_t track, const TimeSpan& when, std::string_view name,
                               std::uint64_t flow, std::span<const Argument> arguments) {
  std::string interned;
  std::string event = EventOn(track, kBegin);
  if (const std::uint64_t id = Intern(event_names_, kInternedEventNames, name, interned)) {
    PutNumber(event, kEventNameId, id);
  } else {
    PutBytes(event, kEventName, name);
  }
  for (const Argument& each : arguments) {
    std::string annotation;
    const std::uint64_t id = Intern(argument_names_, kInternedAnnotationNames, each.name, interned);
    PutNumber(annotation, kAnnotationNameId, id);
    if (const auto* const number = std::get_if<std::uint64_t>(&each.value)) {
      PutNumber(annotation, kAnnotationUint, *number);
    } else if (const auto* const real = std::get_if<double>(&each.value)) {
      PutFixed(annotation, kAnnotationDouble, std::bit_cast<std::uint64_t>(*real));
    } else {
      PutBytes(annotation, kAnnotationString, std::get<std::string_view>(each.value));
    }
    PutBytes(event, kEventAnnotations, annotation);
  }
  if (flow != 0) PutFixed(event, kEventFlows, flow);
  AddEvent(when.begin, event, interned);
  AddEvent(when.end, EventOn(track, kEnd), {});
}

void PerfettoEncoder::AddInstant(std::uint64_t track, scheduler::TimePoint at,
                                 std::string_view name) {
  std::string event = EventOn(track, kInstant);
  PutBytes(event, kEventName, name);
  AddEvent(at, event, {});
}

void PerfettoEncoder::AddCount(std::uint64_t track, scheduler::TimePoint at, std::uint64_t value) {
  std::string event = EventOn(track, kCounter);
  PutNumber(event, kEventCounter, value);
  AddEvent(at, event, {});
}

}  // namespace gpushared::server
