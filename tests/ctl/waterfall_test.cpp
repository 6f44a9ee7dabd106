// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/waterfall.h"

#include <algorithm>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json Reply() {
  return {
      {"client", 7},
      {"latency_us", 14'000.0},
      {"before_us", 0.0},
      {"waterfall",
       {{{"client", 3},
         {"name", "train"},
         {"kind", "other"},
         {"what", "kernel 'gemm'"},
         {"from_us", -2000.0},
         {"to_us", 7000.0},
         {"cut", "was stopped"},
         {"stop_asked_us", 500.0},
         {"stop_latency_us", 6500.0}},
        {{"client", 7}, {"name", "serve"}, {"kind", "wait"}, {"from_us", 0.0}, {"to_us", 7000.0}},
        {{"client", 7},
         {"name", "serve"},
         {"kind", "own"},
         {"what", "kernel 'attend'"},
         {"from_us", 7000.0},
         {"to_us", 14'000.0},
         {"cut", "was not preempted: it is of the high class"}}}}};
}

TEST(Waterfall, ShowsDeviceUseOverTimeAndWhyItIsTruncated) {
  EXPECT_EQ(WaterfallText(Reply()),
            "  since the server began it, 14.0 ms:\n"
            "    . waits   = has the device   # others have it   ! told to stop\n"
            "    train        kernel 'gemm'           |#!############              |   9.0 ms\n"
            "        it was stopped, which took 6.5 ms\n"
            "    serve        (waits)                 |..............              |   7.0 ms\n"
            "    serve        kernel 'attend'         |              ==============|   7.0 ms\n");
}

TEST(Waterfall, FitsTerminalWhateverClientsNames) {
  json reply = Reply();
  reply["waterfall"][0]["name"] = std::string(60, 'n') + "ä\x1b[31m";
  reply["waterfall"][0]["what"] = "kernel '" + std::string(80, 'k') + "'";
  reply["waterfall"][0]["cut"] =
      "was not preemptible: its kernel has no preemptible form, its blocks are short, or no client "
      "with higher priority was connected when it started";
  reply["waterfall"][1]["to_us"] = 1e9;  // After the request's end; no server sends this.
  reply["waterfall"][2]["from_us"] = -1e9;
  std::istringstream lines(WaterfallText(reply));
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto width = std::ranges::count_if(
        line, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
    EXPECT_LE(width, 80) << line;
    EXPECT_EQ(line.find('\x1b'), std::string::npos) << "a terminal gets no commands of clients";
  }
  EXPECT_EQ(count, 8U);
}

TEST(Waterfall, ReportsOmissions) {
  json reply = Reply();
  reply["waterfall_rest"] = {
      {"waits", 2}, {"waited_us", 30.0}, {"commands", 976}, {"on_device_us", 3200.0}};
  EXPECT_THAT(WaterfallText(reply), HasSubstr("    and 976 shorter commands, 3.2 ms in all\n"
                                              "    and 2 shorter waits, 30 us in all\n"));
}

TEST(Waterfall, IsAbsentForOldServer) {
  EXPECT_EQ(WaterfallText({{"latency_us", 10.0}}), "");
  EXPECT_EQ(WaterfallText({{"latency_us", 10.0}, {"waterfall", "nonsense"}}), "");
  EXPECT_EQ(WaterfallText({{"waterfall", {1, "two", nullptr}}}), "") << "and no time";
}

}  // namespace
}  // namespace gpushared::server
