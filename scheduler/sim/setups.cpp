// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include "scheduler/sim/baselines.h"
#include "scheduler/sim/front.h"
#include "scheduler/sim/gated_front.h"
#include "scheduler/sim/lane_front.h"
#include "scheduler/sim/shared_gpu.h"
#include "scheduler/sim/tgs_front.h"
#include "scheduler/sim/time_sliced_gpu.h"

namespace gpushared::simulation {
namespace {

constexpr auto kDriverSlice = std::chrono::milliseconds(2);
// Slice of vGPU schedulers with up to 8 virtual GPUs (480 Hz).
constexpr auto kVgpuSlice = std::chrono::microseconds(2083);
// Tally, ASPLOS'25, and its code: one low kernel in flight, 0.1 ms of idleness before it starts.
// Its transformed kernels take about 25 % longer, which is their only cost here.
constexpr GapRules kTally{.low_in_flight_max = 1,
                          .stops_blocks = true,
                          .low_cost = 1.25,
                          .idle_least = std::chrono::microseconds(100)};
// XSched, OSDI'25: level 1, threshold 8.
constexpr GapRules kXSched{.low_in_flight_max = 8};

// Gate mode under the policies that have classes.
struct GatedSetup {
  std::string_view name, policy, description;
  bool uses_mps = false;
};
constexpr std::array kGated{
    GatedSetup{"gated-priority", "priority",
               "gate mode: policy `priority` gives turns to contexts that the GPU time-slices"},
    GatedSetup{"gated-deadline", "deadline", "the same with policy `deadline`"},
    GatedSetup{"gated-priority-mps", "priority",
               "gate mode: policy `priority` gives turns to contexts that run side by side", true},
    GatedSetup{"gated-deadline-mps", "deadline", "the same with policy `deadline`", true}};

std::unique_ptr<GpuDevice> NewSharedGpu(const FrontOptions& options, std::size_t /*clients*/) {
  return std::make_unique<SharedGpu>(options.multiprocessors, options.costs, options.order);
}

std::unique_ptr<GpuDevice> NewTallyGpu(const FrontOptions& options, std::size_t /*clients*/) {
  GpuCosts costs = options.costs;
  costs.claim = {};
  return std::make_unique<SharedGpu>(options.multiprocessors, costs);
}

std::unique_ptr<GpuDevice> NewTimeSlicedGpu(const FrontOptions& options, std::size_t /*clients*/) {
  return std::make_unique<TimeSlicedGpu>(options.multiprocessors, options.costs, kDriverSlice);
}

std::unique_ptr<GpuDevice> NewVgpu(const FrontOptions& options, std::size_t clients) {
  return std::make_unique<TimeSlicedGpu>(options.multiprocessors, options.costs, kVgpuSlice,
                                         clients);
}

std::unique_ptr<Front> NewOrion(GpuDevice& device, const FrontOptions& options) {
  return std::make_unique<OrionFront>(device, options);
}

std::unique_ptr<Front> NewTgs(GpuDevice& device, const FrontOptions& options) {
  return std::make_unique<TgsFront>(device, options);
}

std::unique_ptr<Front> NewNative(bool high_first, GpuDevice& device, const FrontOptions& options) {
  return std::make_unique<NativeFront>(device, options, high_first);
}

std::unique_ptr<Front> NewGapFront(const GapRules& rules, GpuDevice& device,
                                   const FrontOptions& options) {
  return std::make_unique<GapFront>(device, options, rules);
}

}  // namespace

std::vector<SetupEntry> SetupCatalog() {
  std::vector<SetupEntry> entries;
  for (const scheduler::PolicyEntry& policy : scheduler::PolicyCatalog()) {
    entries.push_back({policy.name, policy.description, NewSharedGpu,
                       [&policy](GpuDevice& device, const FrontOptions& options) {
                         return std::make_unique<LaneFront>(device, policy.make(options.policy),
                                                            options);
                       }});
  }
  for (const GatedSetup& gated : kGated) {
    entries.push_back(
        {gated.name, gated.description, gated.uses_mps ? NewSharedGpu : NewTimeSlicedGpu,
         [policy = scheduler::FindPolicy(gated.policy)](GpuDevice& device,
                                                        const FrontOptions& options) {
           return std::make_unique<GatedFront>(device, policy->make(options.policy), options);
         }});
  }
  entries.push_back({"mps", "blocks of all processes side by side, in the order of their launches",
                     NewSharedGpu, std::bind_front(NewNative, false)});
  entries.push_back({"mps-priority",
                     "the same, free multiprocessors go to the high class first (client priority)",
                     NewSharedGpu, std::bind_front(NewNative, true)});
  entries.push_back({"time-slicing", "one process at a time, 2 ms slices, preempted inside kernels",
                     NewTimeSlicedGpu, std::bind_front(NewNative, false)});
  entries.push_back({"vgpu-fixed", "time slices of 1/480 s for each process, used or not", NewVgpu,
                     std::bind_front(NewNative, false)});
  entries.push_back(
      {"orion",
       "low alongside high if bound by other resources, on as many multiprocessors as there "
       "are (Orion, EuroSys'24)",
       NewSharedGpu, NewOrion});
  entries.push_back({"tally",
                     "low only while high is idle, stopped at blocks that cost 25 % more "
                     "(Tally, ASPLOS'25)",
                     NewTallyGpu, std::bind_front(NewGapFront, kTally)});
  entries.push_back({"tgs",
                     "low limited to as many blocks per 5 ms as do not slow the launches of high "
                     "(TGS, NSDI'23)",
                     NewSharedGpu, NewTgs});
  entries.push_back({"xsched-1",
                     "low only while high is idle, 8 launches in flight that run to their end "
                     "(XSched level 1, OSDI'25)",
                     NewSharedGpu, std::bind_front(NewGapFront, kXSched)});
  return entries;
}

std::optional<SetupEntry> FindSetup(std::string_view name) {
  const std::vector<SetupEntry> entries = SetupCatalog();
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const SetupEntry& entry) { return entry.name == name; });
  if (found == entries.end()) return {};
  return *found;
}

}  // namespace gpushared::simulation
