// SPDX-License-Identifier: Apache-2.0
// Plan for a GPU in its current state, and its description for operators.

#ifndef GPUSHARED_SERVER_TOOLS_MIG_GPU_PLAN_H_
#define GPUSHARED_SERVER_TOOLS_MIG_GPU_PLAN_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "server/tools/mig/apply.h"
#include "server/tools/mig/gpu.h"
#include "server/tools/mig/holders.h"
#include "server/tools/mig/planner.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::mig {

// Requested state of one GPU.
struct Request {
  bool is_enabled = true;
  std::vector<Wanted> wanted;    // Requested instances, if MIG mode is to be enabled.
  std::optional<Layout> places;  // Requested instances with placements; overrides `wanted`.
};

// Describes the user of a device for messages; empty if it is unused. Without MIG mode the device
// is the GPU itself.
using GetUser = std::function<std::string(const std::string& uuid,
                                          const std::vector<std::uint32_t>& processes)>;

struct GpuPlan {
  MigGpu gpu;
  std::vector<Present> have;
  bool is_enabled = true;
  Plan plan;
  std::vector<Holder> holders;  // Processes that hold the GPU, if the mode changes.

  bool ChangesNothing() const;
  Change AsChange() const;
};

// Makes a plan. kUnavailable if an instance to be removed is in use; kUnsupported if the GPU has no
// MIG.
Result<GpuPlan> PlanFor(const MigGpu& gpu, const Request& request, const GetUser& user_of);
std::vector<Present> PresentOn(const MigGpu& gpu, const GetUser& user_of);

// Formats the plan: diagrams before and after, and what is removed. Ends with a newline.
std::string PlanText(const GpuPlan& plan);
nlohmann::json PlanJson(const GpuPlan& plan);
// Formats a GPU with its profiles and instances.
std::string GpuText(const MigGpu& gpu, const std::vector<Present>& have);
nlohmann::json GpuJson(const MigGpu& gpu, const std::vector<Present>& have);
std::string ProfilesText(const Board& board, const Layout& layout);

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_GPU_PLAN_H_
