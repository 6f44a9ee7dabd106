// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/layout.h"

#include <algorithm>
#include <utility>

namespace gpushared::mig {
namespace {

std::uint32_t SlicesAt(const Profile& profile, std::uint32_t start) {
  return ((std::uint32_t{1} << profile.memory_slices) - 1) << start;
}

std::string Number(std::uint32_t value) { return std::to_string(value); }

// Enumerates layouts by placing the instances of one kind after the other. Because instances of a
// kind are interchangeable, each starts after its predecessor, so that no layout is visited twice.
class Search {
 public:
  Search(const Board& board, const std::vector<Wanted>& wanted,
         const std::function<bool(const Layout&)>& visit)
      : board_(board), wanted_(wanted), visit_(visit) {}

  // Returns false if `visit` stopped the search.
  bool Place(std::size_t kind, std::uint32_t placed, std::uint32_t least_start) {
    if (kind == wanted_.size()) return Show();
    const Wanted& wanted = wanted_[kind];
    if (placed == wanted.count) return Place(kind + 1, 0, 0);
    const Profile* const profile = board_.Find(wanted.profile);
    if (profile == nullptr) return true;
    for (const std::uint32_t start : profile->starts) {
      const std::uint32_t slices = SlicesAt(*profile, start);
      if (start < least_start || (used_ & slices) != 0) continue;
      used_ |= slices;
      layout_.push_back({.profile = profile->id, .start = start, .compute = wanted.compute});
      const bool goes_on = Place(kind, placed + 1, start + 1);
      layout_.pop_back();
      used_ &= ~slices;
      if (!goes_on) return false;
    }
    return true;
  }

 private:
  bool Show() const {
    Layout layout = layout_;
    std::ranges::sort(layout, {}, &Instance::start);
    return visit_(layout);
  }

  const Board& board_;
  const std::vector<Wanted>& wanted_;
  const std::function<bool(const Layout&)>& visit_;
  std::uint32_t used_ = 0;
  Layout layout_;
};

bool IsMoreThanAllowed(const Board& board, const std::vector<Wanted>& wanted) {
  return std::ranges::any_of(board.profiles, [&](const Profile& profile) {
    std::uint64_t count = 0;
    for (const Wanted& one : wanted) count += one.profile == profile.id ? one.count : 0;
    return count > profile.count_max;
  });
}

}  // namespace

const Profile* Board::Find(std::uint32_t id) const {
  const auto found = std::ranges::find(profiles, id, &Profile::id);
  return found == profiles.end() ? nullptr : &*found;
}

const Profile* Board::Find(std::string_view wanted) const {
  const auto found = std::ranges::find(profiles, wanted, &Profile::name);
  return found == profiles.end() ? nullptr : &*found;
}

std::string Board::Names() const {
  std::string names;
  for (const Profile& profile : profiles) names += (names.empty() ? "" : ", ") + profile.name;
  return names;
}

std::string KindName(const Board& board, std::uint32_t profile,
                     const std::vector<std::uint32_t>& compute) {
  const Profile* const found = board.Find(profile);
  if (found == nullptr) return "profile " + Number(profile);
  if (compute == std::vector{found->compute_slices}) return found->name;
  std::string division;
  for (const std::uint32_t slices : compute) {
    division += (division.empty() ? "" : "+") + Number(slices) + "c";
  }
  return (division.empty() ? "0c" : division) + "." + found->name;
}

std::string InstanceName(const Board& board, const Instance& instance) {
  return KindName(board, instance.profile, instance.compute) + " at " + Number(instance.start);
}

Status CheckLayout(const Board& board, const Layout& layout) {
  const auto rejected = [&](const Instance& instance, const std::string& why) {
    return Status(StatusCode::kInvalidArgument,
                  "layout rejected: " + InstanceName(board, instance) + " " + why);
  };
  std::uint32_t used = 0;
  for (const Instance& instance : layout) {
    const Profile* const profile = board.Find(instance.profile);
    if (profile == nullptr) return rejected(instance, "is no profile of " + board.name);
    if (std::ranges::find(profile->starts, instance.start) == profile->starts.end()) {
      return rejected(instance, "may not begin at this slice");
    }
    const std::uint32_t slices = SlicesAt(*profile, instance.start);
    if ((used & slices) != 0) return rejected(instance, "overlaps another instance");
    used |= slices;
    const auto count = std::ranges::count(layout, instance.profile, &Instance::profile);
    if (count > static_cast<std::ptrdiff_t>(profile->count_max)) {
      return rejected(instance, "is one of " + std::to_string(count) +
                                    ", allowed: " + Number(profile->count_max));
    }
  }
  return Status::Ok();
}

void ForEachLayout(const Board& board, const std::vector<Wanted>& wanted,
                   const std::function<bool(const Layout& layout)>& visit) {
  if (IsMoreThanAllowed(board, wanted)) return;
  (void)Search(board, wanted, visit).Place(0, 0, 0);
}

// Sizes and counts are from NVIDIA's guide (A100, compute instance profiles):
// docs.nvidia.com/datacenter/tesla/mig-user-guide, "Getting Started with MIG".
Board ComputeBoard(std::uint32_t compute_slices) {
  Board board{.name = Number(compute_slices) + " compute slices", .slices = compute_slices};
  for (const std::uint32_t size : {1U, 2U, 3U, 4U}) {
    if (size >= compute_slices || (size == 3 && compute_slices == 4)) continue;
    Profile profile{
        .name = Number(size) + "c", .id = size, .memory_slices = size, .compute_slices = size};
    // A compute instance of 3 slices starts at 0 or 4, as does one of 4 slices.
    const std::uint32_t step = size == 3 ? 4 : size;
    for (std::uint32_t start = 0; start + size <= compute_slices; start += step) {
      profile.starts.push_back(start);
    }
    profile.count_max = static_cast<std::uint32_t>(profile.starts.size());
    board.profiles.push_back(std::move(profile));
  }
  board.profiles.push_back({.name = Number(compute_slices) + "c",
                            .id = compute_slices,
                            .count_max = 1,
                            .memory_slices = compute_slices,
                            .compute_slices = compute_slices,
                            .starts = {0}});
  return board;
}

}  // namespace gpushared::mig
