// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_CTL_TRACE_PERFETTO_H_
#define GPUSHARED_SERVER_CTL_TRACE_PERFETTO_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "server/ctl/trace/encoder.h"

namespace gpushared::server {

// Perfetto's protobuf: track events of one sequence, with names interned. ui.perfetto.dev and
// trace_processor read it.
class PerfettoEncoder final : public TraceEncoder {
 public:
  // What other clocks showed when CLOCK_MONOTONIC, which all times here are of, showed `monotonic`.
  struct Clocks {
    std::chrono::nanoseconds monotonic{}, boottime{}, realtime{};
    static Clocks Now();
  };
  explicit PerfettoEncoder(const Clocks& clocks);
  void AddTrack(const Track& track) override;
  void AddSlice(std::uint64_t track, const TimeSpan& when, std::string_view name,
                std::uint64_t flow, std::span<const Argument> arguments) override;
  void AddInstant(std::uint64_t track, scheduler::TimePoint at, std::string_view name) override;
  void AddCount(std::uint64_t track, scheduler::TimePoint at, std::uint64_t value) override;
  void Finish() override {}

 private:
  // Names that are sent once; more of them are sent each time.
  static constexpr std::size_t kNamesMax = std::size_t{1} << 16;
  using Names = std::map<std::string, std::uint64_t, std::less<>>;

  // The name's number, which `interned` introduces when it is new; 0: there are too many.
  static std::uint64_t Intern(Names& names, std::uint32_t field, std::string_view name,
                              std::string& interned);
  void AddEvent(scheduler::TimePoint at, std::string_view event, std::string_view interned);
  void AddPacket(std::string_view packet);

  Names event_names_, argument_names_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CTL_TRACE_PERFETTO_H_
