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

namespace gpushared::simulation {

// The worker: one thread that launches for all clients, and the production lane and policy.
// Kernels with a cost key are predicted by the production predictor, from those that have ended;
// others exactly. The launch bubble is exact unless the options say another one.
class LaneFront final : public Front {
 public:
  LaneFront(GpuDevice& device, std::unique_ptr<scheduler::Policy> policy,
            const FrontOptions& options);

  void AddClient(const scheduler::ClientSpec& spec, TimePoint now) override;
  void LimitClient(std::size_t number, std::uint32_t per_mille, TimePoint now) override;
  void Enqueue(const Launch& launch, TimePoint now) override;
  bool OnFinished(const Finished& finished, TimePoint now) override;
  // The lane is told of kOpenRequestsMax at a time; of later ones when those have ended.
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
    std::deque<Launch> waiting;       // Not yet the lane's.
    std::uint32_t nodes_to_come = 0;  // Nodes of the graph that is being launched.
    bool is_blocked = false;  // The lane has one that can be stopped: nothing may follow it.
    std::deque<scheduler::RequestMark> unmarked;  // Requests of which the lane does not know.
    std::size_t marked = 0;
    scheduler::Duration charged{};
  };
  struct Known {
    Launch launch;
    bool stoppable = false;
    std::uint32_t blocks_done = 0;
    // Nodes of the same part of a graph, which the lane has as one command.
    std::vector<Launch> behind = {};
    std::size_t nodes_done = 0;
  };

  bool IsStoppable(const Client& client, const Kernel& kernel) const;
  // The time of the whole kernel, as if it could not be stopped.
  Duration Predicted(const Kernel& kernel) const;
  scheduler::LaneCommand CommandFor(const Known& known) const;
  // How many of the client's waiting launches are the next command: several of a graph.
  std::size_t NextPart(std::size_t number) const;
  bool MustGiveWay(std::size_t number) const;
  void Feed(std::size_t number, TimePoint now);
  void Mark(std::size_t number, TimePoint now);

  GpuDevice& device_;
  const FrontOptions options_;
  scheduler::DeviceLane lane_;
  scheduler::Predictor predictor_;
  std::vector<Client> clients_;
  std::unordered_map<std::uint64_t, Known> known_;               // The lane's commands.
  std::unordered_map<std::uint64_t, std::uint64_t> command_of_;  // By nodes behind the first one.
  std::uint64_t decisions_ = 0;
  TimePoint thread_free_{};
};

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_LANE_FRONT_H_
