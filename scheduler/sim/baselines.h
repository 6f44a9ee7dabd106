// SPDX-License-Identifier: Apache-2.0
// Alternatives to gpushared's policies, each reduced to its rule.

#ifndef GPUSHARED_SCHEDULER_SIM_BASELINES_H_
#define GPUSHARED_SCHEDULER_SIM_BASELINES_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "scheduler/sim/front.h"

namespace gpushared::simulation {

// Models MPS, a shared context and time slicing: every process launches independently, and the
// device schedules.
class NativeFront final : public Front {
 public:
  // `high_first`: the high class uses streams of higher priority.
  NativeFront(GpuDevice& device, const FrontOptions& options, bool high_first)
      : device_(device), options_(options), high_first_(high_first) {}

  void AddClient(const scheduler::ClientSpec& spec, TimePoint now) override;
  void Enqueue(const Launch& launch, TimePoint now) override;
  bool OnFinished(const Finished&, TimePoint) override { return true; }

 private:
  struct Client {
    std::uint8_t priority = 0;
    TimePoint thread_free{};
  };

  GpuDevice& device_;
  const FrontOptions options_;
  const bool high_first_;
  std::vector<Client> clients_;
};

struct GapRules {
  std::size_t low_in_flight_max = 1;  // Limit of kernels in flight of each low-class client.
  bool stops_blocks = false;          // Whether a stopped kernel ends at its next block.
  double low_cost = 1;                // Factor on the time of low-class blocks.
  scheduler::Duration idle_least{};   // Idle time of the high class before low work starts.
};

// Tally and XSched: low work starts only while the high class is idle. They differ in how much low
// work may be in flight and in how it is stopped.
class GapFront final : public Front {
 public:
  GapFront(GpuDevice& device, const FrontOptions& options, const GapRules& rules)
      : device_(device), options_(options), rules_(rules) {}

  void AddClient(const scheduler::ClientSpec& spec, TimePoint now) override;
  void Enqueue(const Launch& launch, TimePoint now) override;
  bool OnFinished(const Finished& finished, TimePoint now) override;
  void Act(TimePoint now) override;
  std::optional<TimePoint> wake_at() const override { return wake_at_; }

 private:
  struct Item {
    Launch launch;
    std::uint32_t blocks_done = 0;
    bool stop_asked = false;
  };
  struct Client {
    bool is_high = false;
    std::deque<Item> waiting;
    std::deque<Item> in_flight;  // In order of submission, which is also the order of their ends.
    TimePoint thread_free{};
  };

  bool IsHighBusy() const;
  void Submit(std::size_t number, TimePoint now);

  GpuDevice& device_;
  const FrontOptions options_;
  const GapRules rules_;
  std::vector<Client> clients_;
  std::unordered_map<std::uint64_t, std::size_t> client_of_;
  // Time at which the high class became idle; empty while it is busy.
  std::optional<TimePoint> idle_since_ = TimePoint();
  std::optional<TimePoint> wake_at_;
};

// Orion: a low kernel runs alongside high ones that are bound by another resource, if it needs few
// enough multiprocessors and not too much low work is in flight. Copies are always admitted.
class OrionFront final : public Front {
 public:
  OrionFront(GpuDevice& device, const FrontOptions& options) : device_(device), options_(options) {}

  void AddClient(const scheduler::ClientSpec& spec, TimePoint now) override;
  void Enqueue(const Launch& launch, TimePoint now) override;
  bool OnFinished(const Finished& finished, TimePoint now) override;
  void Act(TimePoint now) override;

 private:
  struct Client {
    bool is_high = false;
    std::deque<Launch> waiting;
    std::deque<Launch> in_flight;  // The front is the running one.
    TimePoint thread_free{};
  };

  bool Admits(const Launch& low) const;
  void Submit(Client& client, TimePoint now);

  GpuDevice& device_;
  const FrontOptions options_;
  std::vector<Client> clients_;
  std::unordered_map<std::uint64_t, std::size_t> client_of_;
  // Blocks of the low class on the GPU.
  std::uint32_t low_blocks_ = 0;
  Duration low_time_{};
};

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_BASELINES_H_
