// SPDX-License-Identifier: Apache-2.0
// A plan for a GPU as it is now, and what people are told of it.

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

// A wish for one GPU.
struct Request {
  bool is_enabled = true;
  std::vector<Wanted> wanted;    // Under MIG mode.
  std::optional<Layout> places;  // The same with places, in place of `wanted`.
};

// Who uses a device, for a sentence; empty: nobody. Without MIG mode it is the GPU's own.
using GetUser = std::function<std::string(const std::string& uuid,
                                          const std::vector<std::uint32_t>& processes)>;

struct GpuPlan {
  MigGpu gpu;
  std::vector<Present> have;
  bool is_enabled = true;
  Plan plan;
  std::vector<Holder> holders;  // Who holds the GPU, where the mode changes.

  bool ChangesNothing() const;
  Change AsChange() const;
};

// kUnavailable: somebody uses what would go. kUnsupported: the GPU cannot be cut.
Result<GpuPlan> PlanFor(const MigGpu& gpu, const Request& request, const GetUser& user_of);
std::vector<Present> PresentOn(const MigGpu& gpu, const GetUser& user_of);

// Pictures before and after, and what is lost. Each ends with a line's end.
std::string PlanText(const GpuPlan& plan);
nlohmann::json PlanJson(const GpuPlan& plan);
// A GPU, its profiles and instances.
std::string GpuText(const MigGpu& gpu, const std::vector<Present>& have);
nlohmann::json GpuJson(const MigGpu& gpu, const std::vector<Present>& have);
std::string ProfilesText(const Board& board, const Layout& layout);

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_GPU_PLAN_H_
