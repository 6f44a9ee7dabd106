// SPDX-License-Identifier: Apache-2.0
#include "server/config/config_values.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <set>
#include <span>
#include <utility>

#include "scheduler/class_name.h"

namespace gpushared::server {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

// Formats `amount` in the largest unit that divides it.
std::string Exactly(std::uint64_t amount, std::span<const Unit> units) {
  std::string text;
  for (const Unit& unit : units) {
    const auto factor = static_cast<std::uint64_t>(unit.factor);
    if (amount % factor == 0) text = std::to_string(amount / factor) + std::string(unit.name);
  }
  return text;
}

constexpr std::array kDurationUnits = {Unit{"ns", 1}, Unit{"us", 1e3}, Unit{"ms", 1e6},
                                       Unit{"s", 1e9}};
constexpr std::array kByteUnits = {Unit{"B", 1}, Unit{"KiB", 1024.0}, Unit{"MiB", 1024.0 * 1024},
                                   Unit{"GiB", 1024.0 * 1024 * 1024},
                                   Unit{"TiB", 1024.0 * 1024 * 1024 * 1024}};
constexpr std::size_t kDigitsMax = 18;

// Splits "1.5ms" into 1.5 and "ms". Returns false if the text does not start with a plain
// non-negative number.
bool SplitNumber(std::string_view text, double& number, std::string_view& unit) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  if (digits == 0 || digits > kDigitsMax) return false;
  const char* end = text.data() + digits;
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || stop != end) return false;
  unit = text.substr(digits);
  return true;
}

// Formats `value` with at most two decimals and no trailing zeros.
std::string Decimal(double value) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.2f", value);
  std::string result(text.data());
  result.erase(result.find_last_not_of('0') + 1);
  if (result.ends_with('.')) result.pop_back();
  return result;
}

// Returns a suggestion such as "; did you mean 4GiB?" if `text` has a unit of a different notation.
// The factors of `others` are indices into `units`.
std::string OwnUnit(std::string_view text, std::span<const Unit> others,
                    std::span<const Unit> units) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string_view unit = text.substr(digits);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  if (digits == 0 || digits > kDigitsMax) return "";
  const std::string meant = "; did you mean " + std::string(text.substr(0, digits));
  if (std::ranges::find(units, unit, &Unit::name) != units.end()) {
    return meant + std::string(unit) + "?";  // The unit is right; only a blank precedes it.
  }
  const auto found = std::ranges::find(others, unit, &Unit::name);
  if (found == others.end()) return "";
  return meant + std::string(units[static_cast<std::size_t>(found->factor)].name) + "?";
}

}  // namespace

std::string PercentText(double fraction) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.10g%%", fraction * 100);
  return text.data();
}

Result<std::chrono::nanoseconds> ParseDuration(std::string_view text) {
  const std::string allowed =
      "a number with a unit: ns, us, ms or s, for example 2ms or 500us, up to 1000000s";
  double number = 0;
  std::string_view unit;
  if (SplitNumber(text, number, unit)) {
    for (const Unit& known : kDurationUnits) {
      const double nanoseconds = number * known.factor;
      if (unit == known.name && nanoseconds <= 1e15) {
        return std::chrono::nanoseconds(std::llround(nanoseconds));
      }
    }
  }
  constexpr std::array kOthers = {Unit{"sec", 3},       Unit{"second", 3},    Unit{"seconds", 3},
                                  Unit{"secs", 3},      Unit{"S", 3},         Unit{"msec", 2},
                                  Unit{"millis", 2},    Unit{"MS", 2},        Unit{"usec", 1},
                                  Unit{"\xc2\xb5s", 1}, Unit{"\xce\xbcs", 1}, Unit{"nsec", 0}};
  return NotAllowed(text, allowed + OwnUnit(text, kOthers, kDurationUnits));
}

Result<std::uint64_t> ParseBytes(std::string_view text) {
  const std::string allowed =
      "a number with a unit: B, KiB, MiB, GiB or TiB, for example 4GiB, up to 1024TiB";
  double number = 0;
  std::string_view unit;
  if (SplitNumber(text, number, unit)) {
    for (const Unit& known : kByteUnits) {
      const double bytes = number * known.factor;
      if (unit == known.name && bytes <= 0x1p50) return static_cast<std::uint64_t>(bytes);
    }
  }
  constexpr std::array kOthers = {
      Unit{"KB", 1},  Unit{"kB", 1},  Unit{"K", 1},  Unit{"k", 1},   Unit{"kib", 1}, Unit{"MB", 2},
      Unit{"M", 2},   Unit{"m", 2},   Unit{"Mb", 2}, Unit{"mib", 2}, Unit{"MIB", 2}, Unit{"Mib", 2},
      Unit{"GB", 3},  Unit{"G", 3},   Unit{"g", 3},  Unit{"Gb", 3},  Unit{"gb", 3},  Unit{"gib", 3},
      Unit{"GIB", 3}, Unit{"Gib", 3}, Unit{"TB", 4}, Unit{"T", 4},   Unit{"tib", 4}, Unit{"b", 0}};
  return NotAllowed(text, allowed + OwnUnit(text, kOthers, kByteUnits));
}

Result<double> ParseFraction(std::string_view text) {
  double number = 0;
  std::string_view unit;
  if (SplitNumber(text, number, unit)) {
    if (unit == "%" && number <= 100) return number / 100;
    if (unit.empty() && number == 0) return 0.0;
    if (unit.empty() && number <= 1) {
      return NotAllowed(
          text, "a percentage from 0% to 100%; did you mean " + Decimal(number * 100) + "%?");
    }
  }
  return NotAllowed(text, "a percentage from 0% to 100%, such as 25%");
}

Result<std::uint64_t> ParseCount(std::string_view text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && !text.empty() && value >= least && value <= most) {
    return value;
  }
  return NotAllowed(text,
                    "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
}

Result<std::vector<std::uint32_t>> ParseCpuList(std::string_view text) {
  constexpr std::size_t kRangesMax = 128;
  std::set<std::uint32_t> processors;
  std::size_t ranges = 0;
  for (std::string_view rest = text; !rest.empty() || ranges == 0;) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t dash = item.find('-');
    const Result<std::uint64_t> first = ParseCount(item.substr(0, dash), 0, CPU_SETSIZE - 1);
    if (!first.ok()) return first.status();
    const Result<std::uint64_t> last =
        dash == std::string_view::npos ? first
                                       : ParseCount(item.substr(dash + 1), *first, CPU_SETSIZE - 1);
    if (!last.ok()) return last.status();
    if (++ranges > kRangesMax) {
      return Status(StatusCode::kInvalidArgument,
                    "more than " + std::to_string(kRangesMax) + " numbers and ranges");
    }
    for (std::uint64_t each = *first; each <= *last; ++each) {
      processors.insert(static_cast<std::uint32_t>(each));
    }
  }
  return std::vector<std::uint32_t>(processors.begin(), processors.end());
}

std::string CpuListText(const std::vector<std::uint32_t>& processors) {
  std::string text;
  for (const std::uint32_t each : processors) {
    text += (text.empty() ? "" : ",") + std::to_string(each);
  }
  return text;
}

std::vector<std::string_view> SplitAtCommas(std::string_view list) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= list.size(); at += parts.back().size() + 1) {
    parts.push_back(list.substr(at, list.find(',', at) - at));
  }
  return parts;
}

std::uint64_t MemoryQuota::Of(std::uint64_t device_bytes) const {
  if (fraction == 0) return std::min(bytes, device_bytes);
  return static_cast<std::uint64_t>(static_cast<double>(device_bytes) * fraction);
}

std::uint64_t MemoryQuota::LimitFor(std::uint64_t device_bytes) const {
  return fraction == 0 ? bytes : Of(device_bytes);
}

std::string MemoryQuota::ToString() const {
  return fraction == 0 ? FormatBytes(bytes) : Decimal(fraction * 100) + "% of the device";
}

Result<MemoryQuota> ParseMemoryQuota(std::string_view text) {
  if (text.ends_with('%')) {
    Result<double> fraction = ParseFraction(text);
    if (fraction.ok() && *fraction > 0) return MemoryQuota{.bytes = 0, .fraction = *fraction};
  } else {
    Result<std::uint64_t> bytes = ParseBytes(text);
    if (bytes.ok() && *bytes > 0) return MemoryQuota{.bytes = *bytes, .fraction = 0};
  }
  return NotAllowed(text, "a size such as 4GiB or a part of the device's memory such as 50%");
}

std::optional<scheduler::SchedulingClass> ParseClass(std::string_view text) {
  constexpr auto& kNames = scheduler::kClassNames;
  const auto* found = std::find(kNames.begin(), kNames.end(), text);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<scheduler::SchedulingClass>(found - kNames.begin());
}

Status ForEachClass(std::string_view text, std::string_view example,
                    const std::function<Status(std::size_t, std::string_view)>& set) {
  std::array<bool, scheduler::kSchedulingClasses> seen{};
  for (const std::string_view item : SplitAtCommas(text)) {
    const std::size_t equals = item.find('=');
    const std::optional<scheduler::SchedulingClass> of_class = ParseClass(item.substr(0, equals));
    if (equals == std::string_view::npos || !of_class ||
        std::exchange(seen.at(static_cast<std::size_t>(*of_class)), true)) {
      return NotAllowed(text, "high=..., normal=... and low=..., each at most once, for example " +
                                  std::string(example));
    }
    if (Status status = set(static_cast<std::size_t>(*of_class), item.substr(equals + 1));
        !status.ok()) {
      return status;
    }
  }
  return Status::Ok();
}

std::string ByClass(const std::function<std::string(std::size_t)>& text_of) {
  std::string list;
  for (std::size_t i = 0; i < scheduler::kSchedulingClasses; ++i) {
    const std::string each = text_of(i);
    if (each.empty()) continue;
    list += (list.empty() ? "" : ",") +
            std::string(scheduler::ClassName(static_cast<scheduler::SchedulingClass>(i))) + "=" +
            each;
  }
  return list;
}

std::string FormatDuration(std::chrono::nanoseconds duration) {
  const double nanoseconds = static_cast<double>(duration.count());
  const Unit* chosen = kDurationUnits.data();
  for (const Unit& unit : kDurationUnits) {
    if (nanoseconds >= unit.factor) chosen = &unit;
  }
  return Decimal(nanoseconds / chosen->factor) + " " + std::string(chosen->name);
}

std::string FormatBytes(std::uint64_t bytes) {
  const Unit* chosen = kByteUnits.data();
  for (const Unit& unit : kByteUnits) {
    if (static_cast<double>(bytes) >= unit.factor) chosen = &unit;
  }
  return Decimal(static_cast<double>(bytes) / chosen->factor) + " " + std::string(chosen->name);
}

std::string DurationText(std::chrono::nanoseconds duration) {
  return Exactly(static_cast<std::uint64_t>(duration.count()), kDurationUnits);
}

std::string BytesText(std::uint64_t bytes) { return Exactly(bytes, kByteUnits); }

std::string Listed(std::span<const std::string_view> names, std::string_view last) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += i == 0 ? "" : i + 1 == names.size() ? last : ", ";
    text += names[i];
  }
  return text;
}

Status NotAllowed(std::string_view asked, std::string_view allowed) {
  return {StatusCode::kInvalidArgument,
          "asked for '" + Escaped(asked) + "', allowed: " + std::string(allowed)};
}

std::string Escaped(std::string_view text, std::size_t bytes_max) {
  std::string result;
  for (const char c : text.substr(0, bytes_max)) {
    if (c >= ' ' && c <= '~' && c != '\\') {
      result += c;
      continue;
    }
    std::array<char, 8> code{};
    std::snprintf(code.data(), code.size(), "\\x%02x", static_cast<unsigned>(c) & 0xffU);
    result += code.data();
  }
  if (text.size() > bytes_max) result += "...";
  return result;
}

}  // namespace gpushared::server
