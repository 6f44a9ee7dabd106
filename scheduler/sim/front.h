// SPDX-License-Identifier: Apache-2.0
// Layer between clients and the GPU: gpushared's scheduler, another system's rule, or none.

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

// A scheduler or baseline between clients and device. Confined to the experiment that drives it.
// Clients are added before any other call, numbered from 0; launches of a client run in order.
class Front {
 public:
  using Duration = scheduler::Duration;
  using TimePoint = scheduler::TimePoint;

  virtual ~Front() = default;
  virtual void AddClient(const scheduler::ClientSpec& spec, TimePoint now) = 0;
  // Caps the client's device time, in thousandths, if the front supports caps.
  virtual void LimitClient(std::size_t /*client*/, std::uint32_t /*per_mille*/, TimePoint) {}
  virtual void Enqueue(const Launch& launch, TimePoint now) = 0;
  // Returns true if the launch is complete; false if its remainder will be submitted again.
  virtual bool OnFinished(const Finished& finished, TimePoint now) = 0;
  // Report the start and the end of a client's requests, numbered from 0, around their launches.
  virtual void OnRequestBegan(std::size_t /*client*/, std::uint64_t /*number*/,
                              TimePoint /*arrived*/, TimePoint) {}
  virtual void OnRequestEnded(std::size_t /*client*/, std::uint64_t /*number*/, TimePoint) {}
  // Called after the events of one moment.
  virtual void Act(TimePoint) {}
  virtual std::optional<TimePoint> wake_at() const { return {}; }
  // Returns the device time charged to the client so far; empty for fronts that do not charge.
  virtual std::optional<Duration> charged(std::size_t /*client*/) const { return {}; }
  // Returns the number of submissions decided by a policy; 0 without a policy.
  virtual std::uint64_t decisions() const { return 0; }
};

struct FrontOptions {
  std::uint32_t multiprocessors = 80;
  GpuCosts costs;
  StreamOrder order = StreamOrder::kEligible;
  scheduler::PolicyOptions policy;
  scheduler::LaneOptions lane;
  // Kernels and copies shorter than this are non-preemptible, as in the worker. The graphs of a
  // normal or low client that another client can preempt are divided into parts of one node or of
  // at most this time.
  scheduler::Duration stop_min = std::chrono::microseconds(100);
  // Whether kernels run in their preemptible form. Without it only copies can be stopped.
  bool claims = true;
  // Launch bubble reported to the lane; derived from the costs when empty.
  std::optional<scheduler::Duration> launch_bubble;
};

// A scheduler or baseline to compare.
struct SetupEntry {
  std::string_view name;         // The value of `--policy`.
  std::string_view description;  // One line, with the source of the rule.
  std::function<std::unique_ptr<GpuDevice>(const FrontOptions& options, std::size_t clients)>
      make_device;
  // Creates the front. The device must outlive it.
  std::function<std::unique_ptr<Front>(GpuDevice& device, const FrontOptions& options)> make_front;
};

// Returns gpushared's policies in the production lane, then the baselines.
std::vector<SetupEntry> SetupCatalog();
// Returns the setup with that name, or no value if the name is unknown.
std::optional<SetupEntry> FindSetup(std::string_view name);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_FRONT_H_
