// SPDX-License-Identifier: Apache-2.0
// The parts into which a device's energy is divided always add up to the whole.
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "server/telemetry/totals/device_totals.h"
#include "server/worker/state/client_registry.h"
#include "server/worker/state/energy_meter.h"

namespace gpushared::server {
namespace {

using namespace std::chrono_literals;
using scheduler::SchedulingClass;
using scheduler::TimePoint;

class EnergyTest : public ::testing::Test {
 protected:
  ClientState& Come(SchedulingClass of_class, const std::string& program) {
    ipc::Owner owner;
    owner.Set("program", program);
    ClientState& client = registry_.Add(std::make_unique<ClientState>(
        ClientState::Setup{.session = ++sessions_,
                           .commands = commands_.get(),
                           .completions = completions_.get(),
                           .graphs = std::make_shared<GraphBudget>(1 << 20, 64)}));
    rows_.push_back(totals_->Enter("main", owner.ToRow()));
    client.totals = totals_->For(of_class, rows_.back());
    meter_.OnClientAdded(client);
    return client;
  }
  void Go(ClientState& client) {
    meter_.OnClientGone(client);
    registry_.Remove(client);
  }
  void End(std::uint64_t energy_mj, scheduler::Duration interval) {
    now_ += interval;
    meter_.EndInterval(energy_mj, now_, registry_.present(), totals_->layout());
  }
  std::uint64_t OfClass(SchedulingClass of_class) const {
    return totals_->layout().classes[static_cast<std::size_t>(of_class)].energy_mj.Get();
  }
  std::uint64_t OfOwners() const {
    std::uint64_t sum = 0;
    for (const DeviceTotals::Owner& row : totals_->layout().owners)
      sum += row.totals.energy_mj.Get();
    return sum;
  }
  std::uint64_t Idle() const { return totals_->layout().energy_idle_mj.Get(); }

  const std::unique_ptr<ipc::CommandSegment> commands_ = std::make_unique<ipc::CommandSegment>();
  const std::unique_ptr<ipc::CompletionSegment> completions_ =
      std::make_unique<ipc::CompletionSegment>();
  const std::unique_ptr<DeviceTotals> totals_ = *DeviceTotals::InMemory();
  const std::unique_ptr<ClientRegistry> registry_owned_ = std::make_unique<ClientRegistry>();
  ClientRegistry& registry_ = *registry_owned_;
  EnergyMeter meter_;
  std::vector<DeviceTotals::Rows> rows_;
  TimePoint now_{};
  std::uint64_t sessions_ = 0;
};

TEST_F(EnergyTest, GoesToClientsByDeviceTimeAndTheRestIsIdle) {
  ClientState& high = Come(SchedulingClass::kHigh, "serve");
  ClientState& low = Come(SchedulingClass::kLow, "train");
  End(0, 5s);
  high.counters.device_time += 100ms;
  low.counters.device_time += 300ms;
  End(1000, 1s);
  EXPECT_EQ(high.counters.energy_mj.Get(), 100U);
  EXPECT_EQ(low.counters.energy_mj.Get(), 300U);
  EXPECT_EQ(Idle(), 600U);
  // Time of earlier intervals is not charged again.
  End(500, 1s);
  EXPECT_EQ(low.counters.energy_mj.Get(), 300U);
  EXPECT_EQ(Idle(), 1100U);
  EXPECT_EQ(totals_->layout().energy_mj.Get(), 1500U);
  EXPECT_EQ(OfClass(SchedulingClass::kHigh), 100U);
}

TEST_F(EnergyTest, ChargesClientsThatLeftInTheInterval) {
  End(0, 1s);
  for (int i = 0; i < 3; ++i) {
    ClientState& client = Come(SchedulingClass::kLow, "short");
    client.counters.device_time += 100ms;
    Go(client);
  }
  End(1000, 1s);
  EXPECT_EQ(OfClass(SchedulingClass::kLow), 300U);
  EXPECT_EQ(OfOwners(), 300U);
  EXPECT_EQ(Idle(), 700U);
  End(1000, 1s);
  EXPECT_EQ(OfClass(SchedulingClass::kLow), 300U);
}

TEST_F(EnergyTest, NothingIsIdleWhereMoreThanTheIntervalWasCharged) {
  ClientState& one = Come(SchedulingClass::kLow, "one");
  ClientState& other = Come(SchedulingClass::kLow, "other");
  End(0, 1s);
  one.counters.device_time += 900ms;
  other.counters.device_time += 300ms;
  End(1000, 1s);
  EXPECT_EQ(one.counters.energy_mj.Get(), 750U);
  EXPECT_EQ(other.counters.energy_mj.Get(), 250U);
  EXPECT_EQ(Idle(), 0U);
}

TEST_F(EnergyTest, SumOfAllRowsIsTheGrowthOfTheCounter) {
  std::mt19937_64 random(1);
  std::uint64_t growth = 0;
  std::vector<ClientState*> clients;
  End(0, 1s);
  for (int interval = 0; interval < 2000; ++interval) {
    if (clients.size() < 20) {
      clients.push_back(&Come(SchedulingClass(random() % 3), std::to_string(random() % 40)));
    }
    for (ClientState* const client : clients) {
      client->counters.device_time += std::chrono::nanoseconds(random() % 120'000'000);
    }
    if (random() % 3 == 0) {
      Go(*clients.back());
      clients.pop_back();
    }
    // Every 100th interval takes an hour, as after a suspension of the machine.
    const std::uint64_t energy_mj = random() % (interval % 100 == 0 ? 2'500'000'000 : 700'000);
    growth += energy_mj;
    End(energy_mj, interval % 100 == 0 ? 3600s : std::chrono::seconds(random() % 3));
    const DeviceTotals::Layout& layout = totals_->layout();
    std::uint64_t sum = Idle();
    for (const ClassTotals& of_class : layout.classes) sum += of_class.energy_mj.Get();
    ASSERT_EQ(sum, growth) << interval;
    ASSERT_EQ(OfOwners() + Idle(), growth) << interval;
    ASSERT_EQ(layout.energy_mj.Get(), growth) << interval;
  }
}

}  // namespace
}  // namespace gpushared::server
