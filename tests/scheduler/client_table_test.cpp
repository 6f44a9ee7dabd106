// SPDX-License-Identifier: Apache-2.0
#include "scheduler/client_table.h"

#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace gpushared::scheduler {
namespace {

TEST(ClientTable, MatchesMapUnderRandomChanges) {
  std::mt19937_64 random(3);
  ClientTable<std::uint64_t> table;
  std::map<ClientId, std::uint64_t> model;
  std::uint64_t last_id = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (model.size() < kClientsMax && random() % 2 == 0) {
      const ClientId client{last_id += 1 + random() % 3};
      table.Add(client, last_id);
      model[client] = last_id;
    } else if (!model.empty()) {
      auto victim = model.begin();
      std::advance(victim, static_cast<std::ptrdiff_t>(random() % model.size()));
      table.Remove(victim->first);
      EXPECT_EQ(table.Find(victim->first), nullptr);
      model.erase(victim);
    }
    ASSERT_EQ(table.size(), model.size());
    const ClientId probe{random() % (last_id + 1)};
    const auto expected = model.find(probe);
    const std::uint64_t* const found = table.Find(probe);
    ASSERT_EQ(found != nullptr, expected != model.end());
    if (found != nullptr) {
      ASSERT_EQ(*found, expected->second);
    }
  }
  for (const auto& [client, value] : table) EXPECT_EQ(model.at(client), value);
}

TEST(ClientTable, IsScannedInTheOrderOfClientNumbers) {
  ClientTable<int> table;
  for (const std::uint64_t id : {5, 1, 9, 3, 7}) table.Add(ClientId{id}, static_cast<int>(id));
  table.Remove(ClientId{1});
  table.Remove(ClientId{7});
  table.Add(ClientId{4}, 4);

  std::vector<std::uint64_t> seen;
  for (const auto& [client, value] : table) seen.push_back(client.value);

  EXPECT_EQ(seen, (std::vector<std::uint64_t>{3, 4, 5, 9}));
}

TEST(ClientTable, HoldsAsManyClientsAsThereMayBe) {
  ClientTable<int> table;
  for (std::uint64_t id = 0; id < kClientsMax; ++id) table.Add(ClientId{id << 32}, 1);

  EXPECT_EQ(table.size(), kClientsMax);
  EXPECT_NE(table.Find(ClientId{std::uint64_t{kClientsMax - 1} << 32}), nullptr);
}

TEST(ClientTableDeathTest, RejectsDuplicateUnknownAndTooManyClients) {
  ClientTable<int> table;
  table.Add(ClientId{1}, 1);
  EXPECT_DEATH(table.Add(ClientId{1}, 1), "added twice");
  EXPECT_DEATH(table.Remove(ClientId{2}), "unknown client");
  EXPECT_DEATH(table.At(ClientId{2}), "unknown client");
  for (std::uint64_t id = 2; id <= kClientsMax; ++id) table.Add(ClientId{id}, 1);
  EXPECT_DEATH(table.Add(ClientId{kClientsMax + 1}, 1), "kClientsMax");
}

}  // namespace
}  // namespace gpushared::scheduler
