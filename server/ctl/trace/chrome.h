// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_CTL_TRACE_CHROME_H_
#define GPUSHARED_SERVER_CTL_TRACE_CHROME_H_

#include <cstdint>
#include <map>

#include "server/ctl/trace/encoder.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::server {

// Chrome's JSON ("Trace Event Format"): chrome://tracing and others read it. A device is a process,
// whatever stands below it a thread.
class ChromeEncoder final : public TraceEncoder {
 public:
  ChromeEncoder();
  void AddTrack(const Track& track) override;
  void AddSlice(std::uint64_t track, const TimeSpan& when, std::string_view name,
                std::uint64_t flow, std::span<const Argument> arguments) override;
  void AddInstant(std::uint64_t track, scheduler::TimePoint at, std::string_view name) override;
  void AddCount(std::uint64_t track, scheduler::TimePoint at, std::uint64_t value) override;
  void Finish() override;

 private:
  struct Place {
    std::uint64_t process = 0;
    std::string name;  // Below the device: with those of the tracks above it.
  };
  void Add(std::uint64_t track, nlohmann::json event);
  void AddName(std::uint64_t track, const char* of, const std::string& name);

  std::map<std::uint64_t, Place> places_;  // By track.
  bool is_first_ = true;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CTL_TRACE_CHROME_H_
