// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/planner.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

namespace gpushared::mig {
namespace {

bool Has(const Layout& layout, const Instance& instance) {
  return std::ranges::find(layout, instance) != layout.end();
}

std::string KindsText(const Board& board, const std::vector<Wanted>& kinds) {
  std::string text;
  for (const Wanted& kind : kinds) {
    text += (text.empty() ? "" : ", ") + std::to_string(kind.count) + " of " +
            KindName(board, kind.profile, kind.compute);
  }
  return text.empty() ? "no instance" : text;
}

// Returns a measure of the remaining space. Space for large instances is weighted more, because
// they are harder to place.
std::uint64_t GetRemainingSpace(const Board& board, const Layout& layout) {
  std::uint32_t used = 0;
  const auto slices_at = [](const Profile& profile, std::uint32_t start) {
    return ((std::uint32_t{1} << profile.memory_slices) - 1) << start;
  };
  for (const Instance& instance : layout) {
    used |= slices_at(*board.Find(instance.profile), instance.start);
  }
  std::uint64_t room = 0;
  for (const Profile& profile : board.profiles) {
    for (const std::uint32_t start : profile.starts) {
      const bool fits = (used & slices_at(profile, start)) == 0;
      room += fits ? std::uint64_t{profile.memory_slices} * profile.memory_slices : 0;
    }
  }
  return room;
}

Plan PlanTo(const std::vector<Present>& have, const Layout& target) {
  Plan plan;
  for (const Present& present : have) {
    (Has(target, present.instance) ? plan.keep : plan.destroy).push_back(present.instance);
  }
  std::ranges::copy_if(target, std::back_inserter(plan.create),
                       [&](const Instance& instance) { return !Has(plan.keep, instance); });
  return plan;
}

// Returns the first instance that is in use but not in the target, or null.
const Present* FindRemovedInUse(const std::vector<Present>& have, const Layout& target) {
  const auto found = std::ranges::find_if(have, [&](const Present& present) {
    return !present.user.empty() && !Has(target, present.instance);
  });
  return found == have.end() ? nullptr : &*found;
}

Status CheckWanted(const Board& board, const std::vector<Wanted>& want) {
  std::uint64_t slices = 0;
  for (const Profile& profile : board.profiles) {
    std::uint64_t count = 0;
    for (const Wanted& one : want) count += one.profile == profile.id ? one.count : 0;
    if (count > profile.count_max) {
      return {StatusCode::kInvalidArgument,
              "layout rejected: asked for " + std::to_string(count) + " of " + profile.name + ", " +
                  board.name + " has at most " + std::to_string(profile.count_max)};
    }
    slices += count * profile.memory_slices;
  }
  for (const Wanted& one : want) {
    if (board.Find(one.profile) != nullptr) continue;
    return {StatusCode::kInvalidArgument, "layout rejected: " + board.name + " has no profile " +
                                              std::to_string(one.profile) + ", it has " +
                                              board.Names()};
  }
  if (slices <= board.slices) return Status::Ok();
  return {StatusCode::kInvalidArgument, "layout rejected: " + KindsText(board, want) + " need " +
                                            std::to_string(slices) + " memory slices, " +
                                            board.name + " has " + std::to_string(board.slices)};
}

Status WhyNone(const Board& board, const std::vector<Present>& have,
               const std::vector<Wanted>& want, std::size_t layouts) {
  if (layouts == 0) {
    return {StatusCode::kInvalidArgument,
            "layout rejected: " + KindsText(board, want) + " have no placement on " + board.name +
                ": instances may begin only at certain slices, see gpusharedctl mig list"};
  }
  std::string used;
  for (const Present& present : have) {
    if (present.user.empty()) continue;
    used += (used.empty() ? "" : "; ") + InstanceName(board, present.instance) + ", used by " +
            present.user;
  }
  return {StatusCode::kUnavailable, "layout rejected: each of the " + std::to_string(layouts) +
                                        " layouts with " + KindsText(board, want) +
                                        " removes an instance that is in use: " + used};
}

}  // namespace

Layout Plan::After() const {
  Layout after = keep;
  after.insert(after.end(), create.begin(), create.end());
  std::ranges::sort(after, {}, &Instance::start);
  return after;
}

Result<Plan> MakePlan(const Board& board, const std::vector<Present>& have,
                      const std::vector<Wanted>& want) {
  if (Status possible = CheckWanted(board, want); !possible.ok()) return possible;
  // The smallest cost wins. Its last element, the layout itself, decides between layouts that are
  // otherwise equal.
  using Cost = std::tuple<std::size_t, std::int64_t, Layout>;
  std::optional<Cost> best;
  std::size_t layouts = 0;
  ForEachLayout(board, want, [&](const Layout& layout) {
    ++layouts;
    if (FindRemovedInUse(have, layout) != nullptr) return true;
    const Plan plan = PlanTo(have, layout);
    Cost cost(plan.destroy.size(), -static_cast<std::int64_t>(GetRemainingSpace(board, layout)),
              layout);
    if (!best || cost < *best) best = std::move(cost);
    return true;
  });
  if (!best) return WhyNone(board, have, want, layouts);
  return PlanTo(have, std::get<Layout>(*best));
}

Result<Plan> MakeExactPlan(const Board& board, const std::vector<Present>& have,
                           const Layout& target) {
  if (Status possible = CheckLayout(board, target); !possible.ok()) return possible;
  if (const Present* const used = FindRemovedInUse(have, target); used != nullptr) {
    return Status(StatusCode::kUnavailable, "layout rejected: it removes " +
                                                InstanceName(board, used->instance) +
                                                ", which is used by " + used->user);
  }
  return PlanTo(have, target);
}

std::vector<Wanted> GetKinds(const Layout& layout) {
  std::vector<Wanted> kinds;
  for (const Instance& instance : layout) {
    const auto same = std::ranges::find_if(kinds, [&](const Wanted& kind) {
      return kind.profile == instance.profile && kind.compute == instance.compute;
    });
    if (same != kinds.end()) {
      ++same->count;
    } else {
      kinds.push_back({.profile = instance.profile, .compute = instance.compute, .count = 1});
    }
  }
  return kinds;
}

}  // namespace gpushared::mig
