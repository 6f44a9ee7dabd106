// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/top/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ctl/top/answers.h"

namespace gpushared::server::top {
namespace {

using nlohmann::json;
using ::testing::Each;
using ::testing::Eq;
using ::testing::SizeIs;

const ClientFigures& Client(const Figures& figures, std::uint64_t id) {
  for (const ClientFigures& each : figures.clients) {
    if (each.now.id == id) return each;
  }
  static const ClientFigures kNone;
  ADD_FAILURE() << "no client " << id;
  return kNone;
}

TEST(TopFigures, RatesAreOfTheTimeBetweenTwoSamples) {
  const Sample before =
      GetSample({DeviceRow("cpu:0", {.high = 1, .low = 2})}, {ClientRow(1, "a", 1)}, 100);
  json later = ClientRow(1, "a", 2);
  later["waited_s"] = 1.5;
  json device = DeviceRow("cpu:0", {.high = 2, .low = 2.5});
  device["totals"]["gap_s"] = 12;
  device["totals"]["gap_used_s"] = 6;
  const Figures figures = Between(&before, GetSample({device}, {later}, 102));
  EXPECT_EQ(Client(figures, 1).PerSecond("device_time_s"), 0.5);
  EXPECT_EQ(Client(figures, 1).waits, 0.5);
  const DeviceFigures& now = figures.devices.at(0);
  EXPECT_EQ(now.busy[0], 0.5);
  EXPECT_EQ(now.busy[1], 0.0);
  EXPECT_EQ(now.busy[2], 0.25);
  EXPECT_EQ(Sum(now.busy), 0.75);
  EXPECT_EQ(now.launches_per_s, 7.5);
  EXPECT_EQ(now.gap_used, 0.5);
}

TEST(TopFigures, WaitingShareNeverExceedsWholeTime) {
  const Sample before = GetSample({}, {ClientRow(1, "a", 1)}, 100);
  json later = ClientRow(1, "a", 1);
  later["waited_s"] = 2.503;  // 2.003 s more than before.
  EXPECT_EQ(Client(Between(&before, GetSample({}, {later}, 102)), 1).waits, 1.0);
}

TEST(TopFigures, TheFirstSampleHasNoRates) {
  const Figures figures =
      Between(nullptr, GetSample({DeviceRow("cpu:0", {.high = 1})}, {ClientRow(1, "a", 1)}, 100));
  EXPECT_THAT(figures.devices.at(0).busy, Each(Eq(std::nullopt)));
  EXPECT_EQ(Client(figures, 1).PerSecond("device_time_s"), std::nullopt);
  EXPECT_EQ(Client(figures, 1).now.name, "a");
}

TEST(TopFigures, DecreasedCounterHasNoRate) {
  const Sample before = GetSample({DeviceRow("cpu:0", {.high = 9})}, {ClientRow(1, "a", 9)}, 100);
  const Figures figures =
      Between(&before, GetSample({DeviceRow("cpu:0", {.high = 1})}, {ClientRow(1, "a", 1)}, 101));
  EXPECT_EQ(figures.devices.at(0).busy[0], std::nullopt);
  EXPECT_EQ(Client(figures, 1).PerSecond("device_time_s"), std::nullopt);
}

TEST(TopFigures, AnotherProcessWithTheSameNumberHasNoRateYet) {
  const Sample before = GetSample({}, {ClientRow(1, "a", 1)}, 100);
  json other = ClientRow(1, "b", 5);
  other["pid"] = 4711;
  EXPECT_EQ(Client(Between(&before, GetSample({}, {other}, 101)), 1).PerSecond("device_time_s"),
            std::nullopt);
}

TEST(TopFigures, ShowsMissedTargetInItsInterval) {
  const auto promised = [](int requests, int kept) {
    json client = ClientRow(1, "a", 1);
    client["latency_target_us"] = 25000;
    client["requests"] = requests;
    client["requests_target_met"] = kept;
    return GetSample({}, {client}, requests);
  };
  const Sample first = promised(10, 10), second = promised(20, 19), third = promised(30, 29);
  EXPECT_FALSE(Client(Between(nullptr, first), 1).missed_target);
  EXPECT_TRUE(Client(Between(&first, second), 1).missed_target);
  EXPECT_FALSE(Client(Between(&second, third), 1).missed_target);
  EXPECT_EQ(Client(Between(&first, second), 1).met, 0.95);
  EXPECT_EQ(Client(Between(&first, second), 1).PerSecond("requests"), 1.0);
}

TEST(TopFigures, SplitsPowerByDeviceTimeAsTheServerSplitsEnergy) {
  const auto device = [](double busy_s) {
    json row = DeviceRow("cpu:0", {.high = busy_s});
    row["gpu"] = {{"power_w", 400}};
    return row;
  };
  const Sample before = GetSample({device(0)}, {ClientRow(1, "a", 0), ClientRow(2, "b", 0)}, 100);
  const auto after = [&](double a, double b) {
    return Between(&before,
                   GetSample({device(a + b)}, {ClientRow(1, "a", a), ClientRow(2, "b", b)}, 101));
  };
  EXPECT_EQ(Client(after(0.25, 0.5), 1).watts, 100.0);
  EXPECT_EQ(Client(after(0.25, 0.5), 2).watts, 200.0);
  EXPECT_EQ(Client(after(1, 1), 1).watts, 200.0) << "concurrent commands share the power";
  EXPECT_TRUE(after(0, 0).HasEnergy());
  json elsewhere = ClientRow(1, "a", 1);
  elsewhere["device"] = "cpu:1";
  const Figures figures = Between(&before, GetSample({DeviceRow("cpu:0", {})}, {elsewhere}, 101));
  EXPECT_EQ(Client(figures, 1).watts, std::nullopt);
  EXPECT_FALSE(figures.HasEnergy());
}

TEST(TopSample, AbsentFiguresAreNotZero) {
  const Sample sample =
      GetSample({json::object({{"device", "cpu:0"}})}, {json::object({{"client", 1U}})}, 1);
  EXPECT_EQ(sample.devices.at(0).memory_bytes, std::nullopt);
  EXPECT_EQ(sample.devices.at(0).device_s[0], std::nullopt);
  EXPECT_EQ(sample.devices.at(0).launches, std::nullopt);
  EXPECT_EQ(sample.clients.at(0)["device_time_s"], std::nullopt);
}

TEST(TopSample, ValuesOfAnotherTypeAreAbsent) {
  Sample sample;
  for (const json& nonsense : {json(), json(7), json("x"), json::array({1}), json::object()}) {
    ReadDevices(nonsense, 1, sample);
    ReadDevices({{"devices", nonsense}, {"server", nonsense}}, 1, sample);
    const json row = {{"totals", nonsense}, {"device", nonsense}, {"memory_bytes", "many"}};
    const json deep = {{"totals", {{"classes", nonsense}}}};
    ReadDevices({{"devices", json::array({nonsense, row, deep})}}, 1, sample);
    EXPECT_EQ(sample.devices.back().launches, std::nullopt);
    EXPECT_EQ(sample.devices.back().memory_bytes, std::nullopt);
    ReadClients(nonsense, 1, sample);
    ReadClients({{"clients", nonsense}}, 1, sample);
    EXPECT_THAT(sample.clients, SizeIs(0));
    const json client = {{"client", 1U}, {"name", nonsense}, {"uid", "x"}, {"class", nonsense}};
    ReadClients({{"clients", json::array({nonsense, client})}}, 1, sample);
    EXPECT_THAT(sample.clients, SizeIs(1));
  }
  ReadClients({{"clients", json::array({json::object({{"client", 1U}, {"weight", -1}})})}}, 1,
              sample);
  EXPECT_EQ(sample.clients.at(0)["weight"], std::nullopt) << "no figure is below zero";
}

TEST(TopSample, LimitsRows) {
  Sample sample;
  json devices = json::array(), clients = json::array();
  for (std::size_t i = 0; i < kDevicesMax + 3; ++i) devices.push_back(DeviceRow("d", {}));
  for (std::size_t i = 0; i < kClientsMax + 3; ++i) clients.push_back({{"client", i}});
  ReadDevices({{"devices", devices}}, 1, sample);
  ReadClients({{"clients", clients}}, 1, sample);
  EXPECT_THAT(sample.devices, SizeIs(kDevicesMax));
  EXPECT_THAT(sample.clients, SizeIs(kClientsMax));
}

TEST(TopHistory, KeepsRecentHistoryOfPresentDevices) {
  History history;
  const Sample before = GetSample({DeviceRow("cpu:0", {.high = 1})}, {}, 1);
  for (std::size_t i = 0; i < History::kMomentsMax + 5; ++i) {
    history.Add(Between(&before, GetSample({DeviceRow("cpu:0", {.high = 2})}, {}, 2)));
  }
  history.AddHole();
  ASSERT_THAT(history.Of("cpu:0"), SizeIs(History::kMomentsMax));
  EXPECT_EQ(Sum(history.Of("cpu:0").back()), std::nullopt);
  EXPECT_EQ(Sum(history.Of("cpu:0").front()), 1.0);
  EXPECT_THAT(history.Of("cpu:1"), SizeIs(0));
  history.Add(Between(nullptr, GetSample({DeviceRow("cpu:1", {})}, {}, 3)));
  EXPECT_THAT(history.Of("cpu:0"), SizeIs(0));
}

}  // namespace
}  // namespace gpushared::server::top
