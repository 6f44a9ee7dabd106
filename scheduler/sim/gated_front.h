// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_SIM_GATED_FRONT_H_
#define GPUSHARED_SCHEDULER_SIM_GATED_FRONT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "scheduler/device_lane.h"
#include "scheduler/sim/front.h"
#include "scheduler/sim/request_marks.h"

namespace gpushared::simulation {

// Models gate mode: every client launches from a thread and a context of its own, and the
// production lane and policy schedule its *turns* as commands. Under policies in which classes
// matter, a client of class high never waits for its turn. Any other client launches only while its
// gate is open, and keeps at most the window plus one launch in flight. Closing the gate stops a
// turn, which has left the device when the launches in flight have ended. A graph is one launch.
// Copies neither wait for the gate nor count, but follow the launches before them.
//
// The limits equal those of the worker (server/worker/dispatch: turns.h, submitter.h), which this
// library cannot include. Predictions are exact, and the end of each launch is noticed, whereas a
// real client marks its streams after 50 us (with a window) or 200 us of predicted work. It is not
// modelled that a launch is submitted without a turn after it has waited for a second.
class GatedFront final : public Front {
 public:
  // A turn without launches in flight ends after kIdle. A turn in which nothing was launched ends
  // after kUnused.
  static constexpr Duration kIdle = std::chrono::microseconds(50);
  static constexpr Duration kUnused = std::chrono::milliseconds(2);
  // A stopped turn ends after this time even if its launches have not ended.
  static constexpr Duration kDrainMax = std::chrono::milliseconds(20);
  // Window while a client whose latency matters is connected.
  static constexpr Duration kUrgentWindow = std::chrono::microseconds(250);

  GatedFront(GpuDevice& device, std::unique_ptr<scheduler::Policy> policy,
             const FrontOptions& options);

  void AddClient(const scheduler::ClientSpec& spec, TimePoint now) override;
  void Enqueue(const Launch& launch, TimePoint now) override;
  bool OnFinished(const Finished& finished, TimePoint now) override;
  void OnRequestBegan(std::size_t number, std::uint64_t request, TimePoint arrived,
                      TimePoint now) override;
  void OnRequestEnded(std::size_t number, std::uint64_t request, TimePoint now) override;
  void Act(TimePoint now) override;
  std::optional<TimePoint> wake_at() const override { return wake_at_; }
  std::optional<Duration> charged(std::size_t client) const override {
    return clients_[client].charged;
  }
  // Returns the number of turns, counting each part of a turn that was stopped.
  std::uint64_t decisions() const override { return decisions_; }

 private:
  enum class Turn : std::uint8_t { kNone, kQueued, kOpen, kStopped };
  struct Client {
    scheduler::ClientSpec spec;
    bool waits = true;                    // Whether the client launches only in its turn.
    std::optional<Duration> window = {};  // Empty while no other client is connected.
    std::deque<Launch> waiting = {};
    // Predicted times of the work on the GPU, in order of submission. The work ends in the same
    // order. No value for a copy.
    std::deque<std::optional<Duration>> submitted = {};
    std::size_t in_flight = 0;  // Number of launches in `submitted`, and their predicted time.
    Duration in_flight_time{};
    TimePoint thread_free{};
    Turn turn = Turn::kNone;
    bool is_turn_used = false;  // Whether anything was launched since the last turn ended.
    TimePoint changed_at{};     // The latest launch or end of a launch, or the start of the turn.
    // Times at which the client detects that its gate was opened, and that it was closed.
    TimePoint opens_at{}, closes_at{};
    TimePoint stopped_at{};
    RequestMarks requests = {};
    Duration charged{};
  };

  void SetTerms(Client& client) const;
  // Submits the launches for which the client need not wait, and requests a turn for the client if
  // there is none.
  void SubmitWaiting(std::size_t number, TimePoint now);
  bool MayLaunch(const Client& client, TimePoint now) const;
  void SubmitNext(std::size_t number, TimePoint now);
  scheduler::LaneCommand TurnCommand(std::size_t number) const;
  void AskForTurn(std::size_t number, TimePoint now);
  // Ends the client's turn if it is over.
  void Review(std::size_t number, TimePoint now);
  // Returns when the client's state changes without another event; empty if no such change is due.
  std::optional<TimePoint> NextChange(const Client& client, TimePoint now) const;

  GpuDevice& device_;
  const FrontOptions options_;
  scheduler::DeviceLane lane_;
  std::vector<Client> clients_;
  std::unordered_map<std::uint64_t, std::size_t> client_of_;  // Client by id of work on the GPU.
  std::uint64_t decisions_ = 0;
  std::optional<TimePoint> wake_at_;
};

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_GATED_FRONT_H_
