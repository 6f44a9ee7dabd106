// SPDX-License-Identifier: Apache-2.0
// A lane, its clients and a device, driven by one seed.

#ifndef GPUSHARED_TESTS_SIMULATION_WORLD_H_
#define GPUSHARED_TESTS_SIMULATION_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "scheduler/device_lane.h"
#include "scheduler/policy_catalog.h"
#include "tests/support/serial_device.h"

namespace gpushared::testing {

// Clients that connect, die, change class, sleep, submit bursts, and launch kernels whose times
// differ from their predictions; a device that stops between units. Everything, including policy
// and options, follows from the seed. Invariants are checked after each step; the first violation
// ends the run.
//
// Thread-compatible.
class World {
 public:
  using ClientId = scheduler::ClientId;
  using Duration = scheduler::Duration;
  using TimePoint = scheduler::TimePoint;

  struct Outcome {
    std::string broken;  // Empty if all invariants held.
    std::uint64_t steps = 0;
    std::uint64_t submits = 0, stops = 0, deaths = 0, completed = 0;
    std::uint64_t looked_ahead =
        0;  // Submissions behind work of the same stream while an urgent client is connected.
  };

  explicit World(std::uint64_t seed);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Takes `steps` steps with a random event each, and then runs without events until all work is
  // done.
  Outcome Run(std::uint64_t steps);
  // Returns the seed's choices in one line.
  std::string Describe() const;

 private:
  struct Client {
    scheduler::ClientSpec spec;
    // Most of its commands take between half of this time and this time.
    Duration time_typical{};
    Duration unit{};  // Its commands stop between units of this time; 0: they are not stoppable.
    std::size_t queued = 0;
    std::vector<std::uint64_t> requests;  // The open requests.
  };
  struct Command {
    ClientId client;
    Duration left{};
    Duration predicted{};
    Duration unit{};
    std::uint32_t stream = 0;
    std::uint64_t submission = 0;  // Number of the submission, ascending.
    bool is_in_flight = false;
    bool is_windowed = false;
    bool stop_asked = false;
    scheduler::SchedulingClass scheduling_class{};  // Class at the submission.
  };

  // Possible events.
  void RandomEvent();
  void AddClient();
  void Burst(ClientId client);
  void MarkRequest(ClientId client);
  void Kill(ClientId client);
  void ChangeSpec(ClientId client);
  void SetLaunchBubble();
  void AdvanceTo(TimePoint until);
  void Drain();

  void TakeActions();
  void OnSubmit(const scheduler::Action& action);
  void OnStop(const scheduler::Action& action);
  void OnFinished(const SerialDevice::Finished& finished);

  // Invariants.
  void CheckBounds();
  void CheckLookahead(const Command& next);
  void CheckClasses();
  void CheckConservation();
  void CheckFloor();
  void Require(bool holds, const std::string& invariant);

  Duration RandomTime(Duration from, Duration to);
  std::uint64_t Random(std::uint64_t bound) { return random_() % bound; }
  bool Chance(unsigned percent) { return Random(100) < percent; }
  std::optional<ClientId> RandomClient();
  bool IsPriority() const { return policy_.name == "priority"; }
  bool KnowsClasses() const { return rules_.classes_matter; }
  // Whether a client is connected whose latency other work must not increase.
  bool HasUrgentClient() const;
  scheduler::ClientSpec RandomSpec();

  std::mt19937_64 random_;
  const scheduler::PolicyEntry& policy_;
  const scheduler::PolicyOptions policy_options_;
  const scheduler::LaneOptions lane_options_;
  const scheduler::LaneRules rules_;
  const bool stops_nothing_;
  scheduler::DeviceLane lane_;
  SerialDevice device_;

  std::map<ClientId, Client> clients_;
  std::set<ClientId> dead_;
  std::map<std::uint64_t, Command> commands_;  // Queued or in flight.
  std::optional<Duration> launch_bubble_;
  TimePoint now_{};
  std::uint64_t last_client_ = 0;
  std::uint64_t last_command_ = 0;
  std::uint64_t last_request_ = 0;

  Duration charged_{};
  std::map<ClientId, Duration> charged_of_;
  // The time since which the low class has had work without a pause.
  std::optional<TimePoint> low_since_;
  Duration low_charged_{};

  Outcome outcome_;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SIMULATION_WORLD_H_
