// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CTL_TRACE_TIMELINE_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TRACE_TIMELINE_H_

#include <cstdint>
#include <map>
#include <string>

#include "server/telemetry/trace/event.h"
#include "server/telemetry/trace/reader.h"
#include "server/tools/ctl/trace/json_trace.h"

namespace gpushared::server {

// Layout of the events of devices. A device is a process with one thread, which shows which client
// occupied it. Each client is a process, ranked below its device, with its requests, its streams
// and their work, and the depth of its queue. A request and the work for it form one flow.
//
// Thread-compatible.
class Timeline {
 public:
  struct Counts {
    std::uint64_t slices = 0, requests = 0, clients = 0, stops = 0;
  };

  // `trace` must outlive this object.
  explicit Timeline(JsonTrace& trace) : trace_(trace) {}

  // Returns the device's number for Add. `name` is the device's model, if known.
  std::size_t AddDevice(const std::string& id, const std::string& name);
  // `names` is the reader that reported the event.
  void Add(std::size_t device, const trace::Reader& names, const trace::Event& event);

  const Counts& counts() const { return counts_; }

 private:
  // A thread, and the end of its last slice.
  struct Line {
    JsonTrace::Thread thread;
    scheduler::TimePoint until{};
  };
  struct Client {
    JsonTrace::Process process;
    std::string name;
    std::map<std::uint8_t, Line> streams, request_rows;
    trace::Depths last_depths;
  };
  struct Device {
    std::string id;
    std::uint64_t rank = 0;
    Line line;
    std::map<std::uint64_t, Client> clients;  // By session.
  };

  void Add(Device& device, const trace::Reader& names, const trace::Slice& slice);
  void Add(Device& device, const trace::Reader& names, const trace::Request& request);
  void Add(Device& device, const trace::Reader& names, const trace::Depth& depth);
  Client& GetClient(Device& device, const trace::Reader& names, std::uint64_t session);
  Line& GetStream(Client& client, std::uint8_t stream);
  Line& GetRow(Client& client, std::uint8_t row);
  void AddEvent(Line& line, TimeSpan when, std::string_view name, Flow flow,
                std::span<const Argument> arguments);
  void ReportDepths(Client& client, scheduler::TimePoint at, const trace::Depths& depths);

  JsonTrace& trace_;
  std::map<std::size_t, Device> devices_;
  Counts counts_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TRACE_TIMELINE_H_
