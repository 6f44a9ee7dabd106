// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_CTL_TRACE_TIMELINE_H_
#define GPUSHARED_SERVER_CTL_TRACE_TIMELINE_H_

#include <cstdint>
#include <map>
#include <string>

#include "server/ctl/trace/encoder.h"
#include "server/trace/event.h"
#include "server/trace/reader.h"

namespace gpushared::server {

// Lays the events of devices out on tracks. A device's own track shows who had it when. Below it
// each client has its requests, its streams with what ran, and the depth of its queue. What belongs
// to one request is one flow.
//
// Thread-compatible.
class Timeline {
 public:
  struct Counts {
    std::uint64_t slices = 0, requests = 0, clients = 0, stops = 0;
  };

  // `encoder` outlives this.
  explicit Timeline(TraceEncoder& encoder) : encoder_(encoder) {}

  // The number by which the device is known here.
  std::size_t AddDevice(const std::string& name);
  // `names`: the reader that told the event.
  void Add(std::size_t device, const trace::Reader& names, const trace::Event& event);

  const Counts& counts() const { return counts_; }

 private:
  // A track with slices, and where its last one ends.
  struct Line {
    std::uint64_t track = 0;
    scheduler::TimePoint until{};
  };
  struct Client {
    std::uint64_t track = 0;
    std::string name;
    std::map<std::uint8_t, Line> streams, request_rows;
    std::uint64_t queued = 0;  // Its track.
    trace::Depths told;
  };
  struct Device {
    Line line;
    std::map<std::uint64_t, Client> clients;  // By session.
  };

  void Add(Device& device, const trace::Reader& names, const trace::Slice& slice);
  void Add(Device& device, const trace::Reader& names, const trace::Request& request);
  void Add(Device& device, const trace::Reader& names, const trace::Depth& depth);
  Client& ClientOf(Device& device, const trace::Reader& names, std::uint64_t session);
  Line& LineOf(std::map<std::uint8_t, Line>& lines, std::uint8_t index, std::uint64_t parent,
               const std::string& name);
  std::uint64_t AddTrack(std::uint64_t parent, Track::Kind kind, const std::string& name);
  void AddSlice(Line& line, TimeSpan when, std::string_view name, std::uint64_t flow,
                std::span<const Argument> arguments);
  void TellDepths(Client& client, scheduler::TimePoint at, const trace::Depths& depths);

  TraceEncoder& encoder_;
  std::map<std::size_t, Device> devices_;
  std::uint64_t last_track_ = 0;
  Counts counts_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CTL_TRACE_TIMELINE_H_
