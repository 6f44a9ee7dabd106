// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/profile_name.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <utility>

#include "server/tools/mig/planner.h"

namespace gpushared::mig {
namespace {

constexpr std::size_t kQuotedMax = 64;

std::string Quoted(std::string_view text) {
  return "'" + std::string(text.substr(0, kQuotedMax)) + "'";
}

std::optional<std::uint32_t> Number(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Removes a number and the given text after it, such as "3g." in "3g.20gb", from the front, and
// returns the number.
std::optional<std::uint32_t> TakeNumber(std::string_view& text, std::string_view follows) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || !text.substr(digits).starts_with(follows)) return std::nullopt;
  const auto number = Number(text.substr(0, digits));
  if (number) text.remove_prefix(digits + follows.size());
  return number;
}

struct DeviceName {
  std::optional<std::uint32_t> compute;  // The 1 in "1c.3g.20gb".
  std::string_view profile;              // The "3g.20gb" in "1c.3g.20gb".
};

std::optional<DeviceName> SplitName(std::string_view name) {
  DeviceName split;
  split.compute = TakeNumber(name, "c.");
  split.profile = name;
  if (!TakeNumber(name, "g.") || !TakeNumber(name, "gb")) return std::nullopt;
  if (name.empty()) return split;
  // Attributes follow the profile: "+me", "-me", "+gfx", "+me.all".
  const bool is_attribute = name.size() > 1 && (name[0] == '+' || name[0] == '-');
  const bool are_letters = std::ranges::all_of(
      name.substr(1), [](char c) { return (c >= 'a' && c <= 'z') || c == '.' || c == ','; });
  if (!is_attribute || !are_letters) return std::nullopt;
  return split;
}

Status NoProfile(const Board& board, std::string_view name) {
  return {StatusCode::kNotFound, "layout rejected: " + board.name + " has no profile " +
                                     Quoted(name) + ", it has " + board.Names()};
}

Status TooMany(const Board& board, std::uint64_t count) {
  return {StatusCode::kLimitExceeded, "layout rejected: asked for " + std::to_string(count) +
                                          " instances of " + board.name +
                                          ", allowed: " + std::to_string(kInstancesMax)};
}

void AddWanted(std::vector<Wanted>& all, const Profile& profile, std::vector<std::uint32_t> compute,
               std::uint32_t count) {
  const auto same = std::ranges::find_if(
      all, [&](const Wanted& one) { return one.profile == profile.id && one.compute == compute; });
  if (same != all.end()) {
    same->count += count;
  } else if (count > 0) {
    all.push_back({.profile = profile.id, .compute = std::move(compute), .count = count});
  }
}

bool FitInOne(const Profile& profile, const std::vector<std::uint32_t>& compute) {
  const Board inside = ComputeBoard(profile.compute_slices);
  Layout layout;
  for (const std::uint32_t slices : compute) layout.push_back({.profile = slices});
  bool fit = false;
  ForEachLayout(inside, GetKinds(layout), [&](const Layout&) {
    fit = true;
    return false;
  });
  return fit;
}

// Distributes compute instances over GPU instances: first fit, largest first.
void PackCompute(const Profile& profile, std::vector<std::uint32_t> parts,
                 std::vector<Wanted>& all) {
  std::ranges::sort(parts, std::greater<>());
  std::vector<std::vector<std::uint32_t>> packed;
  for (const std::uint32_t part : parts) {
    bool placed = false;
    for (std::vector<std::uint32_t>& compute : packed) {
      compute.push_back(part);
      placed = FitInOne(profile, compute);
      if (placed) break;
      compute.pop_back();
    }
    if (!placed) packed.push_back({part});
  }
  for (std::vector<std::uint32_t>& compute : packed) AddWanted(all, profile, std::move(compute), 1);
}

const Profile* FindNamed(const Board& board, std::string_view name) {
  const auto id = Number(name);
  return id ? board.Find(*id) : board.Find(name);
}

// Calls `take` with each item of a comma-separated list; returns the first rejection.
Status ForEachItem(std::string_view list, const std::function<Status(std::string_view)>& take) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view item = list.substr(0, comma);
    if (item.empty() || comma + 1 == list.size()) {
      return {StatusCode::kInvalidArgument, "layout rejected: an item of the list is empty"};
    }
    if (Status taken = take(item); !taken.ok()) return taken;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return Status::Ok();
}

}  // namespace

bool IsDeviceName(std::string_view name) { return SplitName(name).has_value(); }

Result<std::vector<Wanted>> InstancesFor(const Board& board, const DeviceCounts& devices) {
  std::vector<Wanted> all;
  std::map<const Profile*, std::vector<std::uint32_t>> parts;
  std::uint64_t total = 0;
  for (const auto& [name, count] : devices) {
    const auto split = SplitName(name);
    const Profile* const profile = split ? board.Find(split->profile) : nullptr;
    if (profile == nullptr) return NoProfile(board, name);
    const std::uint32_t compute = split->compute.value_or(profile->compute_slices);
    if (ComputeBoard(profile->compute_slices).Find(compute) == nullptr) {
      return NoProfile(board, name);
    }
    total += count;
    // A GPU instance has at most one compute instance per slice.
    if (total > kInstancesMax * std::uint64_t{8}) return TooMany(board, total);
    if (compute == profile->compute_slices) {
      AddWanted(all, *profile, {compute}, count);
    } else {
      parts[profile].insert(parts[profile].end(), count, compute);
    }
  }
  for (const auto& [profile, sizes] : parts) PackCompute(*profile, sizes, all);
  return all;
}

DeviceCounts GetDevices(const Board& board, const Layout& layout) {
  DeviceCounts devices;
  for (const Instance& instance : layout) {
    for (const std::uint32_t slices : instance.compute) {
      ++devices[KindName(board, instance.profile, {slices})];
    }
  }
  return devices;
}

Result<std::vector<Wanted>> ParseInstances(const Board& board, std::string_view list) {
  std::vector<Wanted> all;
  std::uint64_t total = 0;
  Status parsed = ForEachItem(list, [&](std::string_view item) {
    std::string_view name = item;
    // "2x1g.5gb"; no profile name begins with a count.
    const std::uint32_t count = TakeNumber(name, "x").value_or(1);
    const Profile* const profile = FindNamed(board, name);
    if (profile == nullptr) return NoProfile(board, name);
    if (count == 0) {
      return Status(StatusCode::kInvalidArgument,
                    "layout rejected: " + Quoted(item) + " asks for no instance");
    }
    total += count;
    if (total > kInstancesMax) return TooMany(board, total);
    AddWanted(all, *profile, {profile->compute_slices}, count);
    return Status::Ok();
  });
  if (!parsed.ok()) return parsed;
  return all;
}

Result<Layout> ParseLayout(const Board& board, std::string_view list) {
  Layout layout;
  Status parsed = ForEachItem(list, [&](std::string_view item) {
    const std::size_t colon = item.find(':');
    const auto start =
        colon == std::string_view::npos ? std::nullopt : Number(item.substr(colon + 1));
    if (!start) {
      return Status(StatusCode::kInvalidArgument,
                    "layout rejected: " + Quoted(item) + " is not PROFILE:START");
    }
    const Profile* const profile = FindNamed(board, item.substr(0, colon));
    if (profile == nullptr) return NoProfile(board, item.substr(0, colon));
    layout.push_back(
        {.profile = profile->id, .start = *start, .compute = {profile->compute_slices}});
    return layout.size() <= kInstancesMax ? Status::Ok() : TooMany(board, layout.size());
  });
  if (parsed.ok()) parsed = CheckLayout(board, layout);
  if (!parsed.ok()) return parsed;
  std::ranges::sort(layout, {}, &Instance::start);
  return layout;
}

}  // namespace gpushared::mig
