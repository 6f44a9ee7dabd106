// SPDX-License-Identifier: Apache-2.0
#include "server/config_values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <span>

#include "scheduler/class_name.h"

namespace gpushared::server {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array kDurationUnits = {Unit{"ns", 1}, Unit{"us", 1e3}, Unit{"ms", 1e6},
                                       Unit{"s", 1e9}};
constexpr std::array kByteUnits = {Unit{"B", 1}, Unit{"KiB", 1024.0}, Unit{"MiB", 1024.0 * 1024},
                                   Unit{"GiB", 1024.0 * 1024 * 1024},
                                   Unit{"TiB", 1024.0 * 1024 * 1024 * 1024}};
constexpr std::size_t kDigitsMax = 18;

// Splits "1.5ms" into 1.5 and "ms". False when there is no plain non-negative number in front.
bool SplitNumber(std::string_view text, double& number, std::string_view& unit) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  if (digits == 0 || digits > kDigitsMax) return false;
  const char* end = text.data() + digits;
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || stop != end) return false;
  unit = text.substr(digits);
  return true;
}

Status Refused(std::string_view text, std::string_view allowed) {
  return {StatusCode::kInvalidArgument,
          "asked for '" + Escaped(text) + "', allowed is " + std::string(allowed)};
}

// `value` with at most two decimals and no trailing zeros.
std::string Decimal(double value) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.2f", value);
  std::string result(text.data());
  result.erase(result.find_last_not_of('0') + 1);
  if (result.ends_with('.')) result.pop_back();
  return result;
}

// Where `text` has a unit that others write: "; did you mean 4GiB?". The factors of `others` are
// the places of what is meant in `units`.
std::string OwnUnit(std::string_view text, std::span<const Unit> others,
                    std::span<const Unit> units) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string_view unit = text.substr(digits);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  if (digits == 0 || digits > kDigitsMax) return "";
  const std::string meant = "; did you mean " + std::string(text.substr(0, digits));
  if (std::ranges::find(units, unit, &Unit::name) != units.end()) {
    return meant + std::string(unit) + "?";  // A blank was between them.
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
  return Refused(text, allowed + OwnUnit(text, kOthers, kDurationUnits));
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
  return Refused(text, allowed + OwnUnit(text, kOthers, kByteUnits));
}

Result<double> ParseFraction(std::string_view text) {
  double number = 0;
  std::string_view unit;
  if (SplitNumber(text, number, unit)) {
    if (unit == "%" && number <= 100) return number / 100;
    if (unit.empty() && number == 0) return 0.0;
    if (unit.empty() && number <= 1) {
      return Refused(text,
                     "a percentage from 0% to 100%; did you mean " + Decimal(number * 100) + "%?");
    }
  }
  return Refused(text, "a percentage from 0% to 100%, such as 25%");
}

Result<std::uint64_t> ParseCount(std::string_view text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && !text.empty() && value >= least && value <= most) {
    return value;
  }
  return Refused(text,
                 "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
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

std::uint64_t MemoryQuota::LimitOf(std::uint64_t device_bytes) const {
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
  return Refused(text, "a size such as 4GiB or a part of the device's memory such as 50%");
}

std::optional<scheduler::SchedulingClass> ParseClass(std::string_view text) {
  constexpr auto& kNames = scheduler::kClassNames;
  const auto* found = std::find(kNames.begin(), kNames.end(), text);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<scheduler::SchedulingClass>(found - kNames.begin());
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
