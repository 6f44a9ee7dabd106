// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/telemetry/trace/reader.h"
#include "server/telemetry/trace/writer.h"
#include "server/tools/ctl/trace/json_trace.h"
#include "server/tools/ctl/trace/timeline.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::_;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

scheduler::TimePoint At(std::chrono::nanoseconds time) { return scheduler::TimePoint(time); }

// A trace in the form that viewers read.
class Picture {
 public:
  Picture()
      : writer_(*trace::Writer::Create()), reader_(*trace::Reader::Open(*writer_->ShareMemory())) {}

  trace::Writer& writer() { return *writer_; }
  const Timeline& timeline() const { return timeline_; }
  std::size_t AddDevice(const std::string& id, const std::string& name) {
    return timeline_.AddDevice(id, name);
  }
  void Poll(std::size_t device) {
    reader_.Poll([&](const trace::Event& event) { timeline_.Add(device, reader_, event); });
  }
  json Finish() {
    trace_.Finish();
    const json file = json::parse(trace_.Take(), nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(file.is_object());
    return file.is_object() ? file["traceEvents"] : json::array();
  }

 private:
  std::unique_ptr<trace::Writer> writer_;
  trace::Reader reader_;
  JsonTrace trace_;
  Timeline timeline_{trace_};
};

std::vector<json> Of(const json& events, const std::string& phase) {
  std::vector<json> found;
  for (const json& event : events) {
    if (event["ph"] == phase) found.push_back(event);
  }
  return found;
}

// Returns the lines as viewers show them, from the top, each as "process / thread".
std::vector<std::string> Shown(const json& events) {
  std::map<std::uint64_t, std::pair<std::uint64_t, std::string>> processes, threads;
  std::map<std::uint64_t, std::uint64_t> process_of;
  for (const json& each : Of(events, "M")) {
    const bool is_process = each["name"].get<std::string>().starts_with("process");
    auto& line = is_process ? processes[each["pid"]] : threads[each["tid"]];
    if (each["args"].contains("sort_index")) line.first = each["args"]["sort_index"];
    if (each["args"].contains("name")) line.second = each["args"]["name"];
    process_of[each["tid"]] = each["pid"];
  }
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> sorted;
  for (const auto& [id, thread] : threads) {
    const auto& process = processes[process_of[id]];
    sorted[{process.first, thread.first}] = process.second + " / " + thread.second;
  }
  std::vector<std::string> shown;
  for (const auto& [rank, line] : sorted) shown.push_back(line);
  return shown;
}

TEST(TraceFile, DevicesClientsAndStreamsHaveOneLineEach) {
  Picture picture;
  const std::size_t device = picture.AddDevice("cpu:0", "some device");
  picture.writer().NameClient(7, 4121, "serve \"<b>\" \\");
  picture.writer().NameKernel(trace::KernelKey(1, 0), "gemm");
  picture.writer().Write({.session = 7,
                          .submitted = At(1000us),
                          .started = At(1001us),
                          .ended = At(2002us + 3ns),
                          .charged = 1002us + 3ns,
                          .stop_asked = At(1900us),
                          .cut = trace::Cut::kStopped,
                          .was_stopped = true},
                         {.kernel = trace::KernelKey(1, 0),
                          .request = 812,
                          .stream = 3,
                          .queued = At(995us),
                          .ended = At(2000us),
                          .left = {.queued = 4}});
  picture.writer().Write(trace::Request{.session = 7,
                                        .number = 812,
                                        .row = 1,
                                        .stream = 3,
                                        .arrived = At(0us),
                                        .begun = At(900us),
                                        .ended = At(2100us),
                                        .target = 2ms});
  picture.writer().Write(trace::Depth{.session = 7, .at = At(2200us), .depths = {.queued = 9}});
  picture.Poll(device);
  const json events = picture.Finish();
  const std::string client = "serve \"<b>\" \\ (client 7, pid 4121, cpu:0)";
  EXPECT_THAT(Shown(events), ElementsAre("cpu:0 some device / cpu:0 some device",
                                         client + " / requests 2", client + " / stream 3"));
  std::map<std::string, std::uint64_t> lines;
  for (const json& name : Of(events, "M")) {
    if (name["name"] == "thread_name") lines[name["args"]["name"]] = name["tid"];
  }
  const std::vector<json> slices = Of(events, "X");
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(slices[0]["tid"], lines.at("cpu:0 some device"));
  EXPECT_EQ(slices[0]["name"], "serve \"<b>\" \\");
  EXPECT_DOUBLE_EQ(slices[0]["ts"], 1000.0);
  EXPECT_DOUBLE_EQ(slices[0]["dur"], 1002.003);
  EXPECT_EQ(slices[1]["tid"], lines.at("stream 3"));
  EXPECT_EQ(slices[1]["name"], "gemm");
  EXPECT_DOUBLE_EQ(slices[1]["dur"], 999.0);
  EXPECT_EQ(slices[1]["args"]["left"], "unfinished");
  EXPECT_DOUBLE_EQ(slices[1]["args"]["queue_wait_us"], 5.0);
  EXPECT_EQ(slices[2]["tid"], lines.at("requests 2"));
  EXPECT_EQ(slices[2]["args"]["target"], "missed") << "2.1 ms since it arrived, the target is 2 ms";
  EXPECT_FALSE(slices[0].contains("bind_id"));
  EXPECT_EQ(slices[1]["bind_id"], slices[2]["bind_id"]) << "one flow";
  EXPECT_TRUE(slices[2].contains("flow_out") && !slices[2].contains("flow_in")) << "begins it";
  EXPECT_TRUE(slices[1].contains("flow_in") && !slices[1].contains("flow_out"));
  const std::vector<json> stops = Of(events, "i");
  ASSERT_EQ(stops.size(), 1U);
  EXPECT_EQ(stops[0]["tid"], slices[1]["tid"]);
  EXPECT_DOUBLE_EQ(stops[0]["ts"], 1900.0);
  const std::vector<json> counts = Of(events, "C");
  ASSERT_EQ(counts.size(), 2U);
  EXPECT_EQ(counts[0]["pid"], slices[1]["pid"]);
  EXPECT_EQ(counts[0]["args"]["commands"], 4);
  EXPECT_EQ(counts[1]["args"]["commands"], 9);
  EXPECT_EQ(picture.timeline().counts().stops, 1U);
}

// Viewers nest a slice that begins before the end of the previous slice of its line.
TEST(TraceFile, SlicesOfALineDoNotOverlap) {
  Picture picture;
  const std::size_t device = picture.AddDevice("cpu:0", "");
  for (int i = 0; i < 3; ++i) {
    const scheduler::TimePoint ended = At(i * 10us + 15us);
    picture.writer().Write({.session = 7, .started = At(i * 10us), .ended = ended},
                           {.ended = ended});
  }
  picture.Poll(device);
  std::map<std::uint64_t, double> until;  // By line.
  for (const json& slice : Of(picture.Finish(), "X")) {
    double& end = until[slice["tid"]];
    EXPECT_GE(slice["ts"].get<double>(), end);
    end = slice["ts"].get<double>() + slice["dur"].get<double>();
  }
  EXPECT_THAT(until, ElementsAre(Pair(_, 35.0), Pair(_, 35.0)));
}

TEST(TraceFile, ClientsOfTwoDevicesAreKeptApart) {
  Picture picture;
  const std::size_t first = picture.AddDevice("gpu:0", ""), second = picture.AddDevice("gpu:1", "");
  picture.writer().Write({.session = 7}, {});
  picture.Poll(first);
  picture.writer().Write({.session = 7}, {});
  picture.Poll(second);
  EXPECT_THAT(Shown(picture.Finish()),
              ElementsAre("gpu:0 / gpu:0", "? (client 7, gpu:0) / stream 0", "gpu:1 / gpu:1",
                          "? (client 7, gpu:1) / stream 0"));
}

// A double in microseconds loses nanoseconds some weeks after boot.
TEST(TraceFile, TimesKeepNanoseconds) {
  JsonTrace trace;
  const JsonTrace::Thread line = trace.AddThread(trace.AddProcess("a", 0), "b", 0);
  const scheduler::TimePoint late = At(std::chrono::hours(24 * 1000) + 7ns);
  trace.AddEvent(line, {late, late + 1930ns}, "work", {}, {});
  EXPECT_THAT(trace.Take(),
              AllOf(HasSubstr("\"ts\":86400000000000.007,"), HasSubstr("\"dur\":1.930,")));
}

// The readings of several clocks at one moment let operators correlate a slice with other logs.
TEST(TraceFile, RecordsOtherClocks) {
  JsonTrace trace;
  trace.Finish();
  const json clocks = json::parse(trace.Take())["metadata"];
  const auto now_ns = [](auto now) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count();
  };
  EXPECT_LE(clocks["monotonic_ns"], now_ns(std::chrono::steady_clock::now()));
  EXPECT_LE(clocks["monotonic_ns"], clocks["boottime_ns"]);
  EXPECT_NEAR(clocks["realtime_ns"].get<double>(),
              static_cast<double>(now_ns(std::chrono::system_clock::now())), 60e9);
}

}  // namespace
}  // namespace gpushared::server
