// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_CTL_TRACE_ENCODER_H_
#define GPUSHARED_SERVER_CTL_TRACE_ENCODER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "scheduler/types.h"

namespace gpushared::server {

// A line of a picture: what stands on it, and under which other one it stands.
struct Track {
  enum class Kind : std::uint8_t { kSlices, kCounter };
  std::uint64_t id = 0;      // Not 0, and used once.
  std::uint64_t parent = 0;  // 0: none.
  Kind kind = Kind::kSlices;
  std::string name;
};

// A fact about a slice. Names are ours; text may be a client's, and is printable UTF-8.
struct Argument {
  std::string_view name;
  std::variant<std::uint64_t, double, std::string_view> value;
};

struct TimeSpan {
  scheduler::TimePoint begin{};
  scheduler::TimePoint end{};
};

// Makes the bytes of a file of one format. Slices of a track do not overlap; otherwise all comes in
// any order, a track before what stands on it.
//
// Thread-compatible.
class TraceEncoder {
 public:
  TraceEncoder() = default;
  TraceEncoder(const TraceEncoder&) = delete;
  TraceEncoder& operator=(const TraceEncoder&) = delete;
  virtual ~TraceEncoder() = default;

  virtual void AddTrack(const Track& track) = 0;
  // Slices with the same `flow`, if it is not 0, are tied together in the order of their times.
  virtual void AddSlice(std::uint64_t track, const TimeSpan& when, std::string_view name,
                        std::uint64_t flow, std::span<const Argument> arguments) = 0;
  virtual void AddInstant(std::uint64_t track, scheduler::TimePoint at, std::string_view name) = 0;
  virtual void AddCount(std::uint64_t track, scheduler::TimePoint at, std::uint64_t value) = 0;
  // The file ends with what Take then returns.
  virtual void Finish() = 0;

  // The bytes since the last call.
  std::string Take() { return std::exchange(bytes_, {}); }
  std::size_t pending_bytes() const { return bytes_.size(); }

 protected:
  std::string bytes_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CTL_TRACE_ENCODER_H_
