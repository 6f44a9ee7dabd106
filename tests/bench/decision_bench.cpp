// SPDX-License-Identifier: Apache-2.0
// The cost of a decision with 64 clients that have 10,000 commands queued each.
//
// An iteration is the worker's work per command: one completes, the lane decides and submits the
// next one, a new one is queued. Each call is timed separately; the cost of reading the clock is a
// separate row and is contained in all others. Allocations are counted by a replaced operator new.
//
// Policies with latency targets are also measured under a second load: all clients have a target of
// 20 ms and are in the middle of a request of 16 commands. Ending a request and beginning the next
// one is part of the enqueue.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "scheduler/device_lane.h"
#include "scheduler/policy_catalog.h"
#include "tests/bench/report.h"
#include "tests/support/allocation_count.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using scheduler::ClientId;
using scheduler::Duration;
using scheduler::TimePoint;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kClients = 64;
constexpr std::uint64_t kGroups = 4;
constexpr std::uint64_t kQueuedPerClient = 10'000;
constexpr int kWarmUpTurns = 20'000;
constexpr int kTurns = 200'000;
constexpr Duration kTarget = 20ms;
constexpr Duration kLaunchBubble = 10us;
constexpr std::uint64_t kCommandsPerRequest = 16;

// A ring of the commands in flight, oldest first; it does not allocate during the measurement.
class InFlightRing {
 public:
  void Push(std::uint64_t command) { slots_[end_++ % slots_.size()] = command; }
  std::uint64_t Pop() { return slots_[begin_++ % slots_.size()]; }
  bool empty() const { return begin_ == end_; }

 private:
  std::array<std::uint64_t, 256> slots_{};
  std::size_t begin_ = 0, end_ = 0;
};

// Samples of each of the three timed calls.
struct Timings {
  std::array<Samples, 3> rows;  // Completion, decision, enqueue.
};

class Load {
 public:
  Load(const scheduler::PolicyEntry& entry, bool has_targets, bool has_groups)
      : lane_(entry.make({.low_floor = 0.1}), scheduler::LaneOptions{}), has_targets_(has_targets) {
    lane_.SetLaunchBubble(kLaunchBubble);
    for (std::uint64_t client = 1; client <= kClients; ++client) {
      const auto kind = static_cast<scheduler::SchedulingClass>(client % 3);
      const auto weight = static_cast<std::uint32_t>(1 + client * 13 % 1000);
      scheduler::ClientSpec spec{.scheduling_class = kind, .weight = weight};
      if (has_targets_) spec.latency_target = kTarget;
      if (has_groups) spec.group = client % kGroups;
      lane_.AddClient(ClientId{client}, spec, now_);
      for (std::uint64_t i = 0; i < kQueuedPerClient; ++i) Enqueue(ClientId{client});
    }
  }

  void Turn(Timings* timings) {
    now_ += 3us;
    const auto start = Clock::now();
    if (!in_flight_.empty()) lane_.OnCompleted(in_flight_.Pop(), now_);
    const auto completed = Clock::now();
    const auto action = lane_.Next(now_);
    const auto decided = Clock::now();
    if (!action || action->kind != scheduler::Action::Kind::kSubmit) return;
    in_flight_.Push(action->command);
    const auto before_enqueue = Clock::now();
    Enqueue(action->client);
    const auto enqueued = Clock::now();
    if (timings == nullptr) return;
    timings->rows[0].Add(completed - start);
    timings->rows[1].Add(decided - completed);
    timings->rows[2].Add(enqueued - before_enqueue);
  }

  // Submits commands until the device is full, so that decisions are made with a full device.
  void Fill() {
    while (const auto action = lane_.Next(now_)) {
      if (action->kind != scheduler::Action::Kind::kSubmit) continue;
      in_flight_.Push(action->command);
      Enqueue(action->client);
    }
  }

 private:
  void Enqueue(ClientId client) {
    ++last_command_;
    const Duration predicted = 1us + Duration(last_command_ % 5'000);
    lane_.Enqueue(client, {last_command_, predicted, last_command_ % 4 == 0}, now_);
    if (has_targets_) GoOnWithRequest(client);
  }

  void GoOnWithRequest(ClientId client) {
    const std::uint64_t command = commands_[client.value]++;
    if (command % kCommandsPerRequest != 0) return;
    const std::uint64_t request = command / kCommandsPerRequest;
    if (request > 0) lane_.EndRequest(client, request - 1, now_);
    lane_.BeginRequest(client, {request, now_}, now_);
  }

  scheduler::DeviceLane lane_;
  const bool has_targets_;
  std::array<std::uint64_t, kClients + 1> commands_{};  // Enqueued so far, for each client.
  InFlightRing in_flight_;
  TimePoint now_{};
  std::uint64_t last_command_ = 0;
};

void Measure(const scheduler::PolicyEntry& entry, bool has_targets, bool has_groups,
             Report& report) {
  Load load(entry, has_targets, has_groups);
  load.Fill();
  for (int turn = 0; turn < kWarmUpTurns; ++turn) load.Turn(nullptr);

  const std::uint64_t before = AllocationCount();
  const auto start = Clock::now();
  for (int turn = 0; turn < kTurns; ++turn) load.Turn(nullptr);
  const std::chrono::duration<double> whole = Clock::now() - start;
  const std::uint64_t allocations = AllocationCount() - before;

  Timings timings;
  for (int turn = 0; turn < kTurns; ++turn) load.Turn(&timings);
  const std::string name =
      std::string(entry.name) + (has_targets ? " promised" : "") + (has_groups ? " grouped" : "");
  report.Add(name + " decision", timings.rows[1]);
  report.Add(name + " completion", timings.rows[0]);
  report.Add(name + " enqueue", timings.rows[2]);
  report.AddValue(name + " turns", kTurns / whole.count() / 1e6, "M/s");
  report.AddValue(name + " allocations", static_cast<double>(allocations), "");
}

Samples ClockCost() {
  Samples samples;
  for (int i = 0; i < 100'000; ++i) {
    const auto start = Clock::now();
    samples.Add(Clock::now() - start);
  }
  return samples;
}

void MeasurePolicies(Report& report) {
  report.Add("reading the clock", ClockCost());
  for (const scheduler::PolicyEntry& entry : scheduler::PolicyCatalog()) {
    Measure(entry, false, false, report);
    if (entry.name == "deadline") Measure(entry, true, false, report);
    if (entry.name == "fair" || entry.name == "priority") Measure(entry, false, true, report);
  }
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  using namespace gpushared::testing;
  return RunReport(argc, argv, "decision_bench: 64 clients, 10000 commands queued each",
                   MeasurePolicies);
}
