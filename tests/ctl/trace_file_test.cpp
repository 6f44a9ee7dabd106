// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/ctl/trace/chrome.h"
#include "server/ctl/trace/perfetto.h"
#include "server/ctl/trace/timeline.h"
#include "server/trace/reader.h"
#include "server/trace/writer.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::HasSubstr;

scheduler::TimePoint At(std::chrono::nanoseconds time) { return scheduler::TimePoint(time); }

// A trace laid out as Chrome's viewer gets it.
class Picture {
 public:
  Picture()
      : writer_(*trace::Writer::Create()), reader_(*trace::Reader::Open(*writer_->ShareMemory())) {}

  trace::Writer& writer() { return *writer_; }
  const Timeline& timeline() const { return timeline_; }
  std::size_t AddDevice(const std::string& name) { return timeline_.AddDevice(name); }
  void Poll(std::size_t device) {
    reader_.Poll([&](const trace::Event& event) { timeline_.Add(device, reader_, event); });
  }
  json Finish() {
    encoder_.Finish();
    const json file = json::parse(encoder_.Take(), nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(file.is_object());
    return file.is_object() ? file["traceEvents"] : json::array();
  }

 private:
  std::unique_ptr<trace::Writer> writer_;
  trace::Reader reader_;
  ChromeEncoder encoder_;
  Timeline timeline_{encoder_};
};

std::vector<json> Of(const json& events, const std::string& phase) {
  std::vector<json> found;
  for (const json& event : events) {
    if (event["ph"] == phase) found.push_back(event);
  }
  return found;
}

TEST(TraceFile, ADeviceItsClientsAndTheirStreamsHaveALineEach) {
  Picture picture;
  const std::size_t device = picture.AddDevice("cpu:0 some device");
  picture.writer().NameClient(7, 4121, "serve \"<b>\"");
  picture.writer().NameKernel(trace::KernelKey(1, 0), "gemm");
  picture.writer().Write(trace::Departure{.session = 7,
                                          .kernel = trace::KernelKey(1, 0),
                                          .request = 812,
                                          .cut = trace::Cut::kStopped,
                                          .stream = 3,
                                          .is_part = true,
                                          .queued = At(995us),
                                          .submitted = At(1000us),
                                          .started = At(1001us),
                                          .ended = At(2000us),
                                          .left_at = At(2002us + 3ns),
                                          .stop_asked = At(1900us),
                                          .charged = 1002us + 3ns,
                                          .left = {.queued = 4}});
  picture.writer().Write(trace::Request{.session = 7,
                                        .number = 812,
                                        .row = 1,
                                        .stream = 3,
                                        .arrived = At(0us),
                                        .begun = At(900us),
                                        .ended = At(2100us),
                                        .promise = 2ms});
  picture.writer().Write(trace::Depth{.session = 7, .at = At(2200us), .depths = {.queued = 9}});
  picture.Poll(device);
  const json events = picture.Finish();
  std::map<std::string, std::uint64_t> lines;
  for (const json& name : Of(events, "M")) {
    if (name["name"] == "thread_name") lines[name["args"]["name"]] = name["tid"];
    EXPECT_EQ(name["pid"], 1) << "one process for one device";
  }
  const std::string client = "serve \"<b>\" (client 7, pid 4121)";
  const std::vector<json> slices = Of(events, "X");
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(slices[0]["tid"], lines.at("cpu:0 some device"));
  EXPECT_EQ(slices[0]["name"], "serve \"<b>\"");
  EXPECT_DOUBLE_EQ(slices[0]["ts"], 1000.0);
  EXPECT_DOUBLE_EQ(slices[0]["dur"], 1002.003);
  EXPECT_EQ(slices[1]["tid"], lines.at(client + ", stream 3"));
  EXPECT_EQ(slices[1]["name"], "gemm");
  EXPECT_DOUBLE_EQ(slices[1]["dur"], 999.0);
  EXPECT_EQ(slices[1]["args"]["left"], "unfinished");
  EXPECT_DOUBLE_EQ(slices[1]["args"]["queue_wait_us"], 5.0);
  EXPECT_EQ(slices[2]["tid"], lines.at(client + ", requests 2"));
  EXPECT_EQ(slices[2]["args"]["promise"], "broken") << "2.1 ms since it arrived, 2 ms promised";
  EXPECT_EQ(slices[1]["bind_id"], slices[2]["bind_id"]) << "one flow";
  const std::vector<json> stops = Of(events, "i");
  ASSERT_EQ(stops.size(), 1U);
  EXPECT_EQ(stops[0]["tid"], slices[1]["tid"]);
  EXPECT_DOUBLE_EQ(stops[0]["ts"], 1900.0);
  const std::vector<json> counts = Of(events, "C");
  ASSERT_EQ(counts.size(), 2U);
  EXPECT_EQ(counts[0]["args"]["commands"], 4);
  EXPECT_EQ(counts[1]["args"]["commands"], 9);
  EXPECT_EQ(picture.timeline().counts().stops, 1U);
}

// Viewers take a slice that begins before the last one's end for a part of that.
TEST(TraceFile, SlicesOfALineDoNotOverlap) {
  Picture picture;
  const std::size_t device = picture.AddDevice("cpu:0");
  for (int i = 0; i < 3; ++i) {
    picture.writer().Write(trace::Departure{.session = 7,
                                            .started = At(i * 10us),
                                            .ended = At(i * 10us + 15us),
                                            .left_at = At(i * 10us + 15us)});
  }
  picture.Poll(device);
  double until = 0;
  for (const json& slice : Of(picture.Finish(), "X")) {
    if (slice["tid"] == 1) continue;
    EXPECT_GE(slice["ts"].get<double>(), until);
    until = slice["ts"].get<double>() + slice["dur"].get<double>();
  }
  EXPECT_DOUBLE_EQ(until, 35.0);
}

TEST(TraceFile, ClientsOfTwoDevicesAreKeptApart) {
  Picture picture;
  const std::size_t first = picture.AddDevice("gpu:0"), second = picture.AddDevice("gpu:1");
  picture.writer().Write(trace::Departure{.session = 7});
  picture.Poll(first);
  picture.writer().Write(trace::Departure{.session = 7});
  picture.Poll(second);
  std::map<std::uint64_t, int> slices;
  for (const json& slice : Of(picture.Finish(), "X")) ++slices[slice["pid"]];
  EXPECT_EQ(slices.size(), 2U);
  for (const auto& [process, count] : slices) EXPECT_EQ(count, 2) << process;
}

TEST(TraceFile, PerfettoSendsANameOnce) {
  PerfettoEncoder encoder({});
  encoder.AddTrack({.id = 1, .name = "line"});
  const std::size_t before = encoder.pending_bytes();
  const std::string name(90, 'k');
  encoder.AddSlice(1, {At(1ns), At(2ns)}, name, 0, {});
  const std::size_t first = encoder.pending_bytes() - before;
  encoder.AddSlice(1, {At(1ns), At(2ns)}, name, 0, {});
  EXPECT_LT(encoder.pending_bytes() - before, first + 60);
  const std::string bytes = encoder.Take();
  EXPECT_EQ(bytes.find(name), bytes.rfind(name));
  EXPECT_EQ(encoder.pending_bytes(), 0U);
}

}  // namespace
}  // namespace gpushared::server
