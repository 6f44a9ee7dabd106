// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/saved_client.h"

namespace gpushared::server {
namespace {

// One per stream that exists, and one for the first failure of stream 0.
constexpr std::uint32_t kReservedMax = ipc::kStreamsMax + 1;

void VisitTime(ipc::Fields& f, const char* name, scheduler::Duration& time) {
  constexpr std::uint64_t kTimeNsMax = std::uint64_t{1} << 62;
  auto ns = static_cast<std::uint64_t>(time.count());
  f.Number(name, ns, 0, kTimeNsMax);
  time = scheduler::Duration(static_cast<std::int64_t>(ns));
}

void VisitCounters(ipc::Fields& f, ClientCounters& counters) {
  VisitTime(f, "device_time", counters.device_time);
  std::uint64_t energy_mj = counters.energy_mj.Get();
  f.Number("energy_mj", energy_mj);
  counters.energy_mj.Set(energy_mj);
  f.Number("commands_taken", counters.commands_taken);
  f.Number("launches", counters.launches);
  f.Number("copies", counters.copies);
  f.Number("fills", counters.fills);
  f.Number("marks", counters.marks);
  f.Number("bytes_in", counters.bytes_in);
  f.Number("bytes_out", counters.bytes_out);
  f.Number("bytes_on_device", counters.bytes_on_device);
  f.Number("commands_rejected", counters.commands_rejected);
  f.Number("commands_failed", counters.commands_failed);
  f.Number("commands_skipped", counters.commands_skipped);
  f.Number("stops", counters.stops);
  VisitTime(f, "stop_time", counters.stop_time);
  VisitTime(f, "wasted", counters.wasted);
  VisitTime(f, "nonpreemptible", counters.nonpreemptible);
  f.Number("event_overruns", counters.event_overruns);
  f.Number("requests", counters.requests);
  f.Number("requests_target_met", counters.requests_target_met);
  f.Struct("request_latency", counters.request_latency);
  f.Struct("queue_wait", counters.queue_wait);
}

}  // namespace

void SavedStream::Visit(ipc::Fields& f) {
  f.Number("stream", stream, 0, ipc::kStreamsMax - 1);
  f.Flag("is_live", is_live);
  f.Reserved<std::uint8_t, 3>();
  f.Number("finished", finished);
  f.Number("last_time_ns", last_time_ns);
  f.Number("failed_first", failed_first);
  f.Number("failed_last", failed_last);
  f.Range("failed_last", failed_last, failed_first, finished);
}

void SavedBuffer::Visit(ipc::Fields& f) {
  f.Number("address", address);
  f.Number("bytes", bytes);
}

void SavedClient::Visit(ipc::Fields& f) {
  f.Number("commands_taken", commands_taken);
  f.Number("commands_published", commands_published);
  f.Number("completions_written", completions_written);
  f.Number("completions_taken", completions_taken);
  f.Number("last_sleep", last_sleep, 0, std::uint64_t{1} << 62);
  f.Number("last_request", last_request, 0, std::uint64_t{1} << 62);
  f.Number("completions_reserved", completions_reserved, 0, kReservedMax);
  f.Flag("has_marked_requests", has_marked_requests);
  f.Reserved<std::uint8_t, 3>();
  VisitCounters(f, counters);
  const std::uint32_t stream_count = f.Count("streams", streams.size(), ipc::kStreamsMax);
  const std::uint32_t buffer_count = f.Count("buffers", buffers.size(), ipc::kBuffersMax);
  f.TailAtMost(kBytesMax);
  f.Elements("streams", streams, stream_count);
  f.Elements("buffers", buffers, buffer_count);
}

}  // namespace gpushared::server
