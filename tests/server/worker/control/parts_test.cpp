// SPDX-License-Identifier: Apache-2.0
// The small components of the control thread, one at a time.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>

#include <gtest/gtest.h>

#include "ipc/wire/layout.h"
#include "server/worker/control/client_chunks.h"
#include "server/worker/control/staging_budget.h"
#include "server/worker/control/stats.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using namespace std::chrono_literals;

class NoChunk : public device::Chunk {};

TEST(ClientChunks, AreMappedOncePerAddressAndFreedWithLastMapping) {
  ClientChunks chunks;
  const device::MemoryPiece area{.base = 1000, .bytes = 100};
  EXPECT_EQ(chunks.CheckFree(1).code(), StatusCode::kNotFound);
  EXPECT_EQ(chunks.CheckMap(1, 1000, area).code(), StatusCode::kNotFound);
  chunks.Add(1, std::make_unique<NoChunk>(), 30);
  chunks.Add(2, std::make_unique<NoChunk>(), 20);
  EXPECT_EQ(chunks.bytes(), 50u);
  EXPECT_FALSE(chunks.CheckMake(1).ok());
  EXPECT_TRUE(chunks.CheckMake(3).ok());
  for (const std::uint64_t outside : {999u, 1071u, 1100u, 0u}) {
    EXPECT_EQ(chunks.CheckMap(1, outside, area).code(), StatusCode::kInvalidArgument) << outside;
  }
  EXPECT_FALSE(chunks.CheckMap(1, 1000, {}).ok()) << "a device without an area";
  EXPECT_TRUE(chunks.CheckMap(1, 1070, area).ok());
  chunks.AddMapping(1030, 1);
  for (const std::uint64_t taken : {1011u, 1030u, 1059u}) {
    EXPECT_FALSE(chunks.CheckMap(2, taken, area).ok()) << taken;
  }
  EXPECT_TRUE(chunks.CheckMap(2, 1010, area).ok());
  EXPECT_TRUE(chunks.CheckMap(1, 1060, area).ok()) << "the same once more, elsewhere";
  chunks.AddMapping(1060, 1);
  EXPECT_FALSE(chunks.CheckFree(1).ok());
  EXPECT_FALSE(chunks.CheckUnmap(1031).ok());
  EXPECT_TRUE(chunks.CheckUnmap(1030).ok());
  chunks.RemoveMapping(1030);
  EXPECT_FALSE(chunks.CheckFree(1).ok()) << "it is still mapped elsewhere";
  chunks.RemoveMapping(1060);
  ASSERT_TRUE(chunks.CheckFree(1).ok());
  EXPECT_NE(chunks.Take(1), nullptr);
  EXPECT_EQ(chunks.bytes(), 20u);
}

TEST(ClientChunks, LimitMappings) {
  ClientChunks chunks;
  const device::MemoryPiece area{.base = 0, .bytes = 10'000};
  chunks.Add(0, std::make_unique<NoChunk>(), 1);
  for (std::uint64_t i = 0; i < ipc::kMappingsMax; ++i) {
    ASSERT_TRUE(chunks.CheckMap(0, i, area).ok());
    chunks.AddMapping(i, 0);
  }
  EXPECT_EQ(chunks.CheckMap(0, 9'000, area).code(), StatusCode::kLimitExceeded);
}

TEST(StatusJson, CountsChunksAsMemory) {
  const SessionFacts facts{.session = 7, .quota_bytes = 100, .chunk_bytes = 30};
  ThreadSnapshot snapshot;
  snapshot.clients.push_back({.session = 7, .mapped_bytes = 20});
  EXPECT_EQ(nlohmann::json::parse(ClientsJson({}, {facts}, snapshot))["clients"][0]["memory_bytes"],
            50);
  const auto status = nlohmann::json::parse(StatusJson({}, {}, {facts}, snapshot));
  EXPECT_EQ(status["mapped_bytes"], 50);
  EXPECT_EQ(status["classes"]["normal"]["quota_used_most"], 0.5);
}

TEST(StatusJson, ReportsPredictionAccuracyAndHostSteal) {
  ThreadSnapshot snapshot;
  CostModel::Accuracy& predictions = snapshot.thread.predictions;
  EXPECT_EQ(nlohmann::json::parse(StatusJson({}, {}, {}, snapshot))["predictions_exceeded_percent"],
            0.0);
  predictions.predictions = 40;
  predictions.exceeded = 10;
  for (int i = 0; i < 6; ++i) predictions.error_permille.Add(4);
  for (int i = 0; i < 3; ++i) predictions.error_permille.Add(7);
  predictions.error_permille.Add(1000);
  snapshot.thread.launch_bubble = 12'500ns;
  snapshot.thread.lookahead = 25us;
  snapshot.thread.host_steal = 1500ms;
  const auto status = nlohmann::json::parse(StatusJson({}, {}, {}, snapshot));
  EXPECT_EQ(status["predictions"], 40);
  EXPECT_EQ(status["predictions_exceeded_percent"], 25.0);
  EXPECT_EQ(status["prediction_error_p50_percent"], 0.4);
  EXPECT_EQ(status["prediction_error_p90_percent"], 0.7);
  EXPECT_EQ(status["launch_bubble_us"], 12.5);
  EXPECT_EQ(status["lookahead_us"], 25.0);
  EXPECT_EQ(status["host_steal_s"], 1.5);
}

TEST(StatusJson, CountsTheSessionsOfEachClass) {
  ThreadSnapshot snapshot;
  std::vector<SessionFacts> sessions(3);
  snapshot.clients.resize(3);
  for (std::uint64_t i = 0; i < 3; ++i) {
    sessions[i].session = snapshot.clients[i].session = i + 1;
    sessions[i].spec.scheduling_class = scheduler::SchedulingClass::kLow;
    sessions[i].quota_bytes = 1000;
  }
  sessions[2].spec.scheduling_class = scheduler::SchedulingClass::kHigh;
  sessions[2].quota_bytes = 0;  // Has no memory yet.
  snapshot.clients[0].commands_pending = 5;
  snapshot.clients[0].mapped_bytes = 900;
  snapshot.clients[1].commands_pending = 5;
  snapshot.clients[1].commands_in_flight = 1;
  snapshot.clients[1].mapped_bytes = 100;
  const auto classes = nlohmann::json::parse(StatusJson({}, {}, sessions, snapshot))["classes"];
  EXPECT_EQ(classes["low"]["sessions"], 2);
  EXPECT_EQ(classes["low"]["waiting"], 1);
  EXPECT_EQ(classes["low"]["memory_bytes"], 1000);
  EXPECT_EQ(classes["low"]["quota_used_most"], 0.9);
  EXPECT_EQ(classes["high"]["sessions"], 1);
  EXPECT_EQ(classes["high"]["quota_used_most"], 0.0);
  EXPECT_EQ(classes["normal"]["sessions"], 0);
}

TEST(StatusJson, ReportsResidentAndGuaranteedMemoryOfClass) {
  ThreadSnapshot snapshot;
  std::vector<SessionFacts> sessions(2);
  snapshot.clients.resize(2);
  for (std::uint64_t i = 0; i < 2; ++i) {
    sessions[i].session = snapshot.clients[i].session = i + 1;
    sessions[i].guaranteed_bytes = 100;
    snapshot.clients[i].mapped_bytes = 300;
  }
  snapshot.clients[0].memory = MemorySnapshot{.resident_bytes = 50};
  const auto of_class =
      nlohmann::json::parse(StatusJson({}, {}, sessions, snapshot))["classes"]["normal"];
  EXPECT_EQ(of_class["memory_bytes"], 600);
  EXPECT_EQ(of_class["resident_bytes"], 350) << "the other's memory does not move";
  EXPECT_EQ(of_class["guaranteed_bytes"], 200);
}

TEST(StagingBudget, GuaranteesHalfEquallyAndSharesOtherHalf) {
  StagingBudget budget(800, 4, 0.0);  // 100 guaranteed to each, 400 shared.
  EXPECT_EQ(budget.session_max(true), 500u);
  EXPECT_EQ(budget.LeftFor(0, true), 500u);
  EXPECT_FALSE(budget.TryTake(0, 501, true));
  EXPECT_TRUE(budget.TryTake(0, 500, true));
  EXPECT_EQ(budget.LeftFor(500, true), 0u);
  EXPECT_FALSE(budget.TryTake(500, 1, true));
  for (int other = 0; other < 3; ++other) {
    EXPECT_EQ(budget.LeftFor(60, true), 40u);
    EXPECT_FALSE(budget.TryTake(60, 41, true));
    EXPECT_TRUE(budget.TryTake(0, 60, true));
    EXPECT_TRUE(budget.TryTake(60, 40, true));
  }
}

TEST(StagingBudget, OrdinarySessionsLeavePartOfSharedHalf) {
  StagingBudget budget(800, 4, 0.25);  // 100 guaranteed to each, 400 shared, 100 of these reserved.
  EXPECT_EQ(budget.session_max(false), 400U);
  EXPECT_EQ(budget.session_max(true), 500U);
  EXPECT_FALSE(budget.TryTake(0, 401, false));
  EXPECT_TRUE(budget.TryTake(0, 400, false));
  EXPECT_EQ(budget.LeftFor(0, false), 100U);  // The client's own guaranteed part.
  EXPECT_TRUE(budget.TryTake(0, 200, true));
  EXPECT_EQ(budget.LeftFor(200, true), 0U);
  EXPECT_EQ(budget.LeftFor(0, false), 100U);
}

TEST(StagingBudget, ReturnedBytesCanBeTakenAgain) {
  StagingBudget budget(800, 4, 0.0);
  std::mt19937_64 random(3);
  for (int round = 0; round < 1000; ++round) {
    std::uint64_t held = 0;
    for (std::uint64_t part = 1; budget.TryTake(held, part, true); part = 1 + random() % 90)
      held += part;
    while (held > 0) {
      const std::uint64_t part = std::min<std::uint64_t>(held, 1 + random() % 90);
      budget.GiveBack(held, part);
      held -= part;
    }
    ASSERT_EQ(budget.LeftFor(0, true), 500u);
  }
}

}  // namespace
}  // namespace gpushared::server
