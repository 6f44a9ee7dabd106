// SPDX-License-Identifier: Apache-2.0
// What stands between clients and the GPU: nothing, our scheduler, or a rule of somebody else's.

#ifndef GPUSHARED_SCHEDULER_SIM_FRONT_H_
#define GPUSHARED_SCHEDULER_SIM_FRONT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/device_lane.h"
#include "scheduler/policy_catalog.h"
#include "scheduler/sim/gpu_device.h"

namespace gpushared::simulation {

struct Launch {
  std::uint64_t id = 0;
  std::size_t client = 0;
  Kernel kernel;
};

// Confined to the experiment that drives it. Clients are added before anything else, numbered
// from 0; their launches run in order.
class Front {
 public:
  using Duration = scheduler::Duration;
  using TimePoint = scheduler::TimePoint;

  virtual ~Front() = default;
  virtual void AddClient(const scheduler::ClientSpec& spec, TimePoint now) = 0;
  // Caps the client's device time, in thousandths, where the front can.
  virtual void LimitClient(std::size_t /*client*/, std::uint32_t /*per_mille*/, TimePoint) {}
  virtual void Enqueue(const Launch& launch, TimePoint now) = 0;
  // True when the launch is complete; false when what is left of it will be submitted again.
  virtual bool OnFinished(const Finished& finished, TimePoint now) = 0;
  // Marks of a client with requests, numbered from 0, around their launches.
  virtual void OnRequestBegan(std::size_t /*client*/, std::uint64_t /*number*/,
                              TimePoint /*arrived*/, TimePoint) {}
  virtual void OnRequestEnded(std::size_t /*client*/, std::uint64_t /*number*/, TimePoint) {}
  // After the events of one time.
  virtual void Act(TimePoint) {}
  virtual std::optional<TimePoint> wake_at() const { return {}; }
  // Device time charged to the client so far; empty where nobody charges.
  virtual std::optional<Duration> charged(std::size_t /*client*/) const { return {}; }
  // Of a policy, to submit something; 0 where none decides.
  virtual std::uint64_t decisions() const { return 0; }
};

struct FrontOptions {
  std::uint32_t multiprocessors = 80;
  GpuCosts costs;
  StreamOrder order = StreamOrder::kEligible;
  scheduler::PolicyOptions policy;
  scheduler::LaneOptions lane;
  // Kernels and copies shorter than this are never cut, as in the worker. Parts of a graph are no
  // longer.
  scheduler::Duration stop_least = std::chrono::microseconds(100);
  bool claims = true;  // Without them kernels are not cut, and copies are.
  // What the lane is told; as long as the costs say when empty.
  std::optional<scheduler::Duration> launch_bubble;
};

// A contestant.
struct SetupEntry {
  std::string_view name;         // The value of `--policy`.
  std::string_view description;  // One line, with the source of the rule.
  std::function<std::unique_ptr<GpuDevice>(const FrontOptions& options, std::size_t clients)>
      make_device;
  // The device outlives the front.
  std::function<std::unique_ptr<Front>(GpuDevice& device, const FrontOptions& options)> make_front;
};

// Our policies through the production lane, then the baselines.
std::vector<SetupEntry> SetupCatalog();
// Ready to run, or empty when the name is unknown.
std::optional<SetupEntry> FindSetup(std::string_view name);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_FRONT_H_
