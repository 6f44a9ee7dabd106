// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/trace/json_trace.h"

#include <time.h>

#include <array>
#include <charconv>

namespace gpushared::server {

namespace {

template <typename Number, typename... Base>
void PutNumber(std::string& to, Number number, Base... base) {
  std::array<char, 32> digits{};
  to.append(digits.begin(), std::to_chars(digits.begin(), digits.end(), number, base...).ptr);
}

void PutClock(std::string& to, const char* name, clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  to += name;
  PutNumber(to, now.tv_sec * 1'000'000'000 + now.tv_nsec);
}

}  // namespace

// Times of events are those of CLOCK_MONOTONIC. The metadata contains readings of this clock and of
// others, taken at about the same moment, so that times can be converted.
JsonTrace::JsonTrace() : text_("{\"displayTimeUnit\":\"ns\",\n\"metadata\":{") {
  PutClock(text_, "\"monotonic_ns\":", CLOCK_MONOTONIC);
  PutClock(text_, ",\"boottime_ns\":", CLOCK_BOOTTIME);
  PutClock(text_, ",\"realtime_ns\":", CLOCK_REALTIME);
  text_ += "},\n\"traceEvents\":[";
}

JsonTrace::Process JsonTrace::AddProcess(std::string_view name, std::uint64_t rank) {
  const Process process{++last_id_};
  Name({process.id, process.id}, "process", name, rank);
  return process;
}

JsonTrace::Thread JsonTrace::AddThread(Process process, std::string_view name, std::uint64_t rank) {
  const Thread thread{.process = process.id, .id = ++last_id_};
  Name(thread, "thread", name, rank);
  return thread;
}

void JsonTrace::Name(Thread thread, std::string_view kind, std::string_view name,
                     std::uint64_t rank) {
  Begin('M', thread, std::string(kind) + "_name");
  text_ += ",\"args\":{\"name\":";
  PutText(name);
  text_ += "}}";
  Begin('M', thread, std::string(kind) + "_sort_index");
  text_ += ",\"args\":{\"sort_index\":";
  PutNumber(text_, rank);
  text_ += "}}";
}

void JsonTrace::AddEvent(Thread thread, const TimeSpan& when, std::string_view name, Flow flow,
                         std::span<const Argument> arguments) {
  Begin('X', thread, name);
  PutTime("ts", when.begin.time_since_epoch());
  PutTime("dur", when.end - when.begin);
  if (flow.id != 0) {
    text_ += ",\"bind_id\":\"0x";
    PutNumber(text_, flow.id, 16);  // Viewers parse it in base 16.
    text_ += flow.is_start ? "\",\"flow_out\":true" : "\",\"flow_in\":true";
  }
  text_ += ",\"args\":{";
  for (const Argument& each : arguments) {
    if (&each != arguments.data()) text_ += ',';
    PutText(each.name);
    text_ += ':';
    if (const auto* const text = std::get_if<std::string_view>(&each.value)) {
      PutText(*text);
    } else if (const auto* const real = std::get_if<double>(&each.value)) {
      PutNumber(text_, *real);
    } else {
      PutNumber(text_, std::get<std::uint64_t>(each.value));
    }
  }
  text_ += "}}";
}

void JsonTrace::AddInstant(Thread thread, scheduler::TimePoint at, std::string_view name) {
  Begin('i', thread, name);
  PutTime("ts", at.time_since_epoch());
  text_ += ",\"s\":\"t\"}";
}

void JsonTrace::AddCount(Process process, scheduler::TimePoint at, std::string_view name,
                         std::uint64_t value) {
  Begin('C', {process.id, process.id}, name);
  PutTime("ts", at.time_since_epoch());
  text_ += ",\"args\":{\"commands\":";
  PutNumber(text_, value);
  text_ += "}}";
}

void JsonTrace::Begin(char phase, Thread thread, std::string_view name) {
  text_ += std::exchange(is_first_, false) ? "\n{\"ph\":\"" : ",\n{\"ph\":\"";
  text_ += phase;
  text_ += "\",\"pid\":";
  PutNumber(text_, thread.process);
  text_ += ",\"tid\":";
  PutNumber(text_, thread.id);
  text_ += ",\"name\":";
  PutText(name);
}

void JsonTrace::PutText(std::string_view text) {
  text_ += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') text_ += '\\';
    text_ += c;
  }
  text_ += '"';
}

// Writes microseconds with three decimals. Formats integers, because a double would lose
// nanoseconds some weeks after boot.
void JsonTrace::PutTime(std::string_view key, scheduler::Duration time) {
  ((text_ += ",\"") += key) += "\":";
  PutNumber(text_, time.count() / 1000);
  const std::size_t point = text_.size();
  PutNumber(text_, 1000 + time.count() % 1000);
  text_[point] = '.';
}

}  // namespace gpushared::server
