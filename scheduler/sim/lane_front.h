// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_SIM_LANE_FRONT_H_
#define GPUSHARED_SCHEDULER_SIM_LANE_FRONT_H_

#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "scheduler/device_lane.h"
#include "scheduler/predictor.h"
#include "scheduler/sim/front.h"
#include "scheduler/sim/request_marks.h"

namespace gpushared::simulation {

// The worker: one thread that launches for all clients, with the production lane and policy.
// Kernels with a cost key are predicted by the production predictor from completed ones; others
// exactly. The launch bubble is exact unless the options set it.
class LaneFront final : public Front {
 public:
  LaneFront(GpuDevice& device, std::unique_ptr<scheduler::Policy> policy,
            const FrontOptions& options);

  void AddClient(const scheduler::ClientSpec& spec, TimePoint now) override;
  void LimitClient(std::size_t number, std::uint32_t per_mille, TimePoint now) override;
  void Enqueue(const Launch& launch, TimePoint now) override;
  bool OnFinished(const Finished& finished, TimePoint now) override;
  void OnRequestBegan(std::size_t number, std::uint64_t request, TimePoint arrived,
                      TimePoint now) override;
  void OnRequestEnded(std::size_t number, std::uint64_t request, TimePoint now) override;
  void Act(TimePoint now) override;
  std::optional<TimePoint> wake_at() const override { return lane_.wake_at(); }
  std::optional<Duration> charged(std::size_t client) const override {
    return clients_[client].charged;
  }
  std::uint64_t decisions() const override { return decisions_; }

 private:
  struct Client {
    scheduler::ClientSpec spec;
    std::deque<Launch> waiting;       // Launches that are not in the lane yet.
    std::uint32_t nodes_to_come = 0;  // Remaining nodes of the graph that is being launched.
    // Whether a stoppable launch is in the lane, so that no other launch may follow it.
    bool is_blocked = false;
    RequestMarks requests;
    scheduler::Duration charged{};
  };
  struct Known {
    Launch launch;
    bool stoppable = false;
    std::uint32_t blocks_done = 0;
    // Further nodes of the same part of a graph. The part is one command of the lane.
    std::vector<Launch> behind = {};
    std::size_t nodes_done = 0;
  };

  bool IsStoppable(const Client& client, const Kernel& kernel) const;
  // Returns the predicted time of the whole kernel, as if it could not be stopped.
  Duration Predicted(const Kernel& kernel) const;
  scheduler::LaneCommand CommandFor(const Known& known) const;
  // Returns the number of the client's waiting launches that form the next command: several for a
  // graph.
  std::size_t NextPart(std::size_t number) const;
  bool MustGiveWay(std::size_t number) const;
  void Feed(std::size_t number, TimePoint now);

  GpuDevice& device_;
  const FrontOptions options_;
  scheduler::DeviceLane lane_;
  scheduler::Predictor predictor_;
  std::vector<Client> clients_;
  std::unordered_map<std::uint64_t, Known> known_;  // Commands in the lane, by number.
  // For each node except the first one of each part: the command that contains the node.
  std::unordered_map<std::uint64_t, std::uint64_t> command_of_;
  std::uint64_t decisions_ = 0;
  TimePoint thread_free_{};
};

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_LANE_FRONT_H_
