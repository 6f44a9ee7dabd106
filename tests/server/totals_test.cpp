// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <variant>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/broker/totals_json.h"
#include "server/telemetry/totals/device_totals.h"
#include "server/telemetry/totals/figures.h"
#include "tests/support/scratch_directory.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using namespace std::chrono_literals;
using scheduler::SchedulingClass;
using ::testing::HasSubstr;

std::unique_ptr<DeviceTotals> Opened(const std::string& path) {
  Result<std::unique_ptr<DeviceTotals>> totals = DeviceTotals::Open(path);
  EXPECT_TRUE(totals.ok()) << totals.status().ToString();
  return totals.ok() ? *std::move(totals) : nullptr;
}

nlohmann::json Read(const std::string& path, const std::set<std::string>& open = {"main"},
                    std::chrono::nanoseconds later = {}) {
  const Result<std::unique_ptr<DeviceTotals::Layout>> read = DeviceTotals::Read(path);
  EXPECT_TRUE(read.ok()) << read.status().ToString();
  return read.ok() ? TotalsJson(**read, open, std::chrono::steady_clock::now() + later)
                   : nlohmann::json();
}

TEST(DeviceTotals, HistogramBoundIncludesEqualDurations) {
  TotalHistogram histogram;
  for (const std::uint64_t ns : {0ull, 1ull, 1023ull, 1024ull}) histogram.Add(ns);
  EXPECT_EQ(histogram.counts[0].Get(), 4U);
  histogram.Add(std::uint64_t{1025});
  histogram.Add(std::uint64_t{2048});
  EXPECT_EQ(histogram.counts[1].Get(), 2U);
  const std::uint64_t last = TotalHistogram::BoundNs(TotalHistogram::kBounds - 1);
  EXPECT_EQ(last, 17'179'869'184U);
  histogram.Add(last);
  histogram.Add(last + 1);
  histogram.Add(~std::uint64_t{0} / 4);
  EXPECT_EQ(histogram.counts[TotalHistogram::kBounds - 1].Get(), 1U);
  EXPECT_EQ(histogram.counts[TotalHistogram::kBounds].Get(), 2U);
  EXPECT_EQ(histogram.sum_ns.Get(),
            1024 + 1023 + 1 + 1025 + 2048 + 2 * last + 1 + ~std::uint64_t{0} / 4);
}

TEST(DeviceTotals, NextWorkerContinuesTotalsOfKilledWorker) {
  const testing::ScratchDirectory directory;
  const std::string path = directory / "totals";
  for (int worker = 1; worker <= 3; ++worker) {
    const pid_t child = ::fork();
    if (child == 0) {
      const std::unique_ptr<DeviceTotals> totals = Opened(path);
      ClientTotals client = totals->For(SchedulingClass::kLow, totals->Enter("main"));
      client.AddSession();
      for (int i = 0; i < 100; ++i) client.AddDeviceTime(5ms);
      client.of_class().queue_wait.Add(std::uint64_t{3000});
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const nlohmann::json totals = Read(path);
    EXPECT_EQ(totals["workers_started"], worker);
    EXPECT_DOUBLE_EQ(totals["classes"]["low"]["device_time_s"], 0.5 * worker);
    EXPECT_EQ(totals["classes"]["low"]["queue_wait"]["counts"][2], worker);
    EXPECT_EQ(totals["classes"]["high"]["sessions"], 0);
    ASSERT_EQ(totals["endpoints"].size(), 1U);
    EXPECT_EQ(totals["endpoints"][0]["sessions"], worker);
    EXPECT_EQ(totals["endpoints"][0]["class"], "low");
  }
}

scheduler::TimePoint Now() {
  return scheduler::TimePoint(std::chrono::steady_clock::now().time_since_epoch());
}

std::string OwnerRow(const std::string& uid, const std::string& program,
                     const std::string& pod = "") {
  ipc::Owner owner;
  owner.Set("uid", uid);
  owner.Set("program", program);
  owner.Set("pod", pod);
  return owner.ToRow();
}

std::set<std::string> Programs(const nlohmann::json& totals) {
  std::set<std::string> programs;
  for (const nlohmann::json& row : totals["owners"]) programs.insert(row["program"]);
  return programs;
}

TEST(DeviceTotals, CountsOwnersInAnyClassAndThroughAnyEndpoint) {
  const testing::ScratchDirectory directory;
  const std::string path = directory / "totals";
  const std::unique_ptr<DeviceTotals> totals = Opened(path);
  const std::string serve = OwnerRow("1000", "serve", "web-1");
  totals->For(SchedulingClass::kHigh, totals->Enter("main", serve)).AddDeviceTime(1s);
  ClientTotals low = totals->For(SchedulingClass::kLow, totals->Enter("batch", serve));
  low.AddSession();
  low.AddDeviceTime(500ms);
  low.AddRequest(1ms, /*has_target=*/true, /*is_target_met=*/false);
  totals->For(SchedulingClass::kLow, totals->Enter("batch", OwnerRow("1000", "train")));
  const nlohmann::json read = Read(path);
  ASSERT_EQ(read["owners"].size(), 2U);
  EXPECT_EQ(read["owners"][0], (nlohmann::json{{"uid", "1000"},
                                               {"program", "serve"},
                                               {"pod", "web-1"},
                                               {"sessions", 1},
                                               {"device_time_s", 1.5},
                                               {"requests", 1},
                                               {"requests_with_target", 1},
                                               {"requests_target_met", 0}}));
}

// The test imitates a machine that runs 10,000 pods a day. Neither the memory nor the answer grows,
// the class counts all owners, and the row of an owner with clients is kept.
TEST(DeviceTotals, KeepsAtMostAsManyOwnersAsThereAreRows) {
  const testing::ScratchDirectory directory;
  const std::string path = directory / "totals";
  const std::unique_ptr<DeviceTotals> totals = Opened(path);
  const auto bytes = std::filesystem::file_size(path);
  totals->For(SchedulingClass::kHigh, totals->Enter("main", OwnerRow("0", "stays")))
      .AddDeviceTime(1s);
  std::size_t answer_bytes = 0;
  for (int pod = 1; pod <= 10'000; ++pod) {
    const DeviceTotals::Rows rows =
        totals->Enter("main", OwnerRow("0", "p", "pod-" + std::to_string(10'000 + pod)));
    totals->For(SchedulingClass::kLow, rows).AddDeviceTime(1ms);
    totals->Leave(rows, Now());
    if (pod % 1000 != 0) continue;
    const nlohmann::json read = Read(path);
    EXPECT_EQ(read["owners"].size(), DeviceTotals::kOwnersMax - 1);
    EXPECT_DOUBLE_EQ(read["classes"]["low"]["device_time_s"], pod / 1000.0);
    EXPECT_TRUE(Programs(read).contains("stays"));
    if (answer_bytes == 0) answer_bytes = read["owners"].dump().size();
    EXPECT_EQ(read["owners"].dump().size(), answer_bytes);
  }
  EXPECT_EQ(std::filesystem::file_size(path), bytes);
  // The series of ended owners end, whether or not their rows are needed.
  const nlohmann::json later = Read(path, {"main"}, kOwnersShownFor + 1s);
  EXPECT_EQ(Programs(later), std::set<std::string>{"stays"});
  EXPECT_DOUBLE_EQ(later["classes"]["low"]["device_time_s"], 10.0);
}

TEST(DeviceTotals, AUserWithManyProgramsEndsNoRowOfOthers) {
  const testing::ScratchDirectory directory;
  const std::string path = directory / "totals";
  const std::unique_ptr<DeviceTotals> totals = Opened(path);
  const auto come_and_go = [&](const std::string& owner) {
    totals->Leave(totals->Enter("main", owner), Now());
  };
  for (int i = 0; i < 20; ++i) come_and_go(OwnerRow("1000", "other-" + std::to_string(i)));
  for (int i = 0; i < 5000; ++i) come_and_go(OwnerRow("2000", "hostile-" + std::to_string(i)));
  const std::set<std::string> programs = Programs(Read(path));
  EXPECT_EQ(programs.size(), DeviceTotals::kOwnersMax - 1);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(programs.contains("other-" + std::to_string(i))) << i;
}

TEST(DeviceTotals, OwnersOfAKilledWorkerEndWithIt) {
  const testing::ScratchDirectory directory;
  const std::string path = directory / "totals";
  Opened(path)->Enter("main", OwnerRow("1000", "serve"));
  const std::unique_ptr<DeviceTotals> next = Opened(path);
  EXPECT_EQ(Programs(Read(path)), std::set<std::string>{"serve"});
  EXPECT_EQ(Programs(Read(path, {"main"}, kOwnersShownFor + 1s)), std::set<std::string>());
  next->Enter("main", OwnerRow("1000", "serve"));
  EXPECT_EQ(Programs(Read(path, {"main"}, kOwnersShownFor + 1s)), std::set<std::string>{"serve"});
}

// Gives each figure a distinct number, and finds it again in the text that is read.
template <typename Row, std::size_t kFigures>
void ExpectEachOnce(const Figure<Row> (&figures)[kFigures], Row& row,
                    const std::function<nlohmann::json()>& read) {
  std::uint64_t number = 0;
  for (const Figure<Row>& figure : figures) {
    const auto total = std::get<Total Row::*>(figure.value);
    (row.*total).Add(++number * 1'000'000'000 - (row.*total).Get());
  }
  const nlohmann::json told = read();
  number = 0;
  for (const Figure<Row>& figure : figures) {
    const std::string_view key = figure.key;
    const double unit = key.ends_with("_s") ? 1 : key.ends_with("_j") ? 1e6 : 1e9;
    EXPECT_EQ(told.at(figure.key), static_cast<double>(++number) * unit) << figure.key;
  }
}

TEST(DeviceTotals, ReportsEachFigureOnce) {
  const testing::ScratchDirectory directory;
  const std::string path = directory / "totals";
  const std::unique_ptr<DeviceTotals> totals = Opened(path);
  const DeviceTotals::Rows row = totals->Enter("main", OwnerRow("1000", "serve"));
  DeviceTotals::Layout& layout = totals->layout();
  ExpectEachOnce(kDeviceFigures, layout, [&] { return Read(path); });
  ExpectEachOnce(kClassFigures, layout.classes[1], [&] { return Read(path)["classes"]["normal"]; });
  ExpectEachOnce(kEndpointFigures, layout.endpoints[row.endpoint].classes[2],
                 [&] { return Read(path)["endpoints"][0]; });
  ExpectEachOnce(kOwnerFigures, layout.owners[row.owner].totals,
                 [&] { return Read(path)["owners"][0]; });
}

TEST(DeviceTotals, OneWorkerWritesAtATime) {
  const testing::ScratchDirectory directory;
  const std::string path = directory / "totals";
  std::unique_ptr<DeviceTotals> first = Opened(path);
  EXPECT_THAT(std::string(DeviceTotals::Open(path).status().message()),
              HasSubstr("another worker writes"));
  first.reset();
  EXPECT_TRUE(DeviceTotals::Open(path).ok());
}

TEST(DeviceTotals, OtherLayoutIsNotReadAndStartsFromZero) {
  const testing::ScratchDirectory directory;
  const std::string path = directory / "totals";
  EXPECT_EQ(DeviceTotals::Read(path).status().code(), StatusCode::kNotFound);
  const auto damage = [&](const std::string& bytes) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file << bytes;
  };
  Opened(path)->layout().gap_ns.Add(7);
  damage("\xff");  // Damages the record size, which never has this low byte.
  EXPECT_THAT(std::string(DeviceTotals::Read(path).status().message()),
              HasSubstr("of another version"));
  EXPECT_EQ(Opened(path)->layout().gap_ns.Get(), 0U);
  std::filesystem::resize_file(path, 100);
  EXPECT_THAT(std::string(DeviceTotals::Read(path).status().message()),
              HasSubstr("of another version"));
  EXPECT_EQ(Opened(path)->layout().workers_started.Get(), 1U);
}

TEST(DeviceTotals, RejectsForeignFile) {
  const testing::ScratchDirectory directory;
  const std::string path = directory / "totals";
  Opened(path).reset();
  ::chmod(path.c_str(), 0644);
  EXPECT_THAT(std::string(DeviceTotals::Open(path).status().message()), HasSubstr("is no file of"));
  EXPECT_THAT(std::string(DeviceTotals::Read(path).status().message()), HasSubstr("is no file of"));
  std::filesystem::remove(path);
  std::filesystem::create_symlink(directory / "elsewhere", path);
  EXPECT_THAT(std::string(DeviceTotals::Open(path).status().message()), HasSubstr("opening"));
}

TEST(DeviceTotals, ReusesRowsOfRemovedEndpoints) {
  const testing::ScratchDirectory directory;
  const std::string path = directory / "totals";
  const std::unique_ptr<DeviceTotals> totals = Opened(path);
  const DeviceTotals::Rows kept = totals->Enter("main");
  totals->For(SchedulingClass::kHigh, kept).AddDeviceTime(1s);
  for (int lease = 0; lease < 2000; ++lease) {
    const DeviceTotals::Rows row = totals->Enter("lease-" + std::to_string(lease));
    ASSERT_NE(row.endpoint, kept.endpoint);
    ClientTotals client = totals->For(SchedulingClass::kNormal, row);
    client.AddSession();
    client.AddDeviceTime(1ms);
    client.AddBytesIn(1);
    client.AddBytesOut(2);
    client.AddBytesOnDevice(3);
    totals->Leave(row);
  }
  // The row of an endpoint with clients is never reassigned, and the class row contains all
  // clients.
  const nlohmann::json read = Read(path, {"main", "lease-1", "lease-1999"});
  EXPECT_DOUBLE_EQ(read["classes"]["normal"]["device_time_s"], 2.0);
  ASSERT_EQ(read["endpoints"].size(), 2U);
  for (const nlohmann::json& row : read["endpoints"]) {
    EXPECT_EQ(row["device_time_s"], row["endpoint"] == "main" ? 1.0 : 0.001);
    EXPECT_NE(row["endpoint"], "lease-1");
    const int bytes = row["endpoint"] == "main" ? 0 : 1;
    EXPECT_EQ(row["bytes_in"], bytes);
    EXPECT_EQ(row["bytes_out"], 2 * bytes);
    EXPECT_EQ(row["bytes_on_device"], 3 * bytes);
  }
}

TEST(DeviceTotals, ReaderNeverMixesRowsOfTwoNames) {
  const testing::ScratchDirectory directory;
  const std::string path = directory / "totals";
  const std::unique_ptr<DeviceTotals> totals = Opened(path);
  std::atomic<bool> is_over = false;
  std::thread writer([&] {
    // Renames row after row. Each "slow-*" has the value 1 s and each "fast-*" 1 ns, so that a
    // mixture is noticed.
    for (int i = 0; !is_over; ++i) {
      const bool is_slow = i % 2 == 0;
      const DeviceTotals::Rows row =
          totals->Enter((is_slow ? "slow-" : "fast-") + std::to_string(i));
      EndpointTotals& low = totals->layout().endpoints[row.endpoint].classes[2];
      low.device_time_ns.Add(is_slow ? 1s : 1ns);
      totals->Leave(row);
    }
  });
  for (int read = 0; read < 300; ++read) {
    const Result<std::unique_ptr<DeviceTotals::Layout>> now = DeviceTotals::Read(path);
    ASSERT_TRUE(now.ok());
    for (const DeviceTotals::Endpoint& row : (*now)->endpoints) {
      const std::uint64_t ns = row.classes[2].device_time_ns.Get();
      const bool is_slow = std::string(row.name).starts_with("slow");
      EXPECT_TRUE(ns == 0 || ns == (is_slow ? 1'000'000'000U : 1U)) << row.name << " " << ns;
    }
  }
  is_over = true;
  writer.join();
}

}  // namespace
}  // namespace gpushared::server
