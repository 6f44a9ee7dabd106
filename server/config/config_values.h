// SPDX-License-Identifier: Apache-2.0
// The quantities that operators write: durations, sizes, fractions. Every parser rejects what it
// does not understand completely, and says what was asked and what is allowed.

#ifndef GPUSHARED_SERVER_CONFIG_CONFIG_VALUES_H_
#define GPUSHARED_SERVER_CONFIG_CONFIG_VALUES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

#include "scheduler/types.h"

namespace gpushared::server {

// "250ns", "500us", "2ms", "1.5s": a number of at most nine digits and a unit, no sign.
Result<std::chrono::nanoseconds> ParseDuration(std::string_view text);

// "4GiB", "512MiB", "64KiB", "4096B": a number and a binary unit. A bare number is rejected,
// because nobody can tell whether it meant bytes.
Result<std::uint64_t> ParseBytes(std::string_view text);

// "25%" as 0.25, from 0% to 100%. A bare number is rejected, because 0.5 is half to some and half a
// percent to others; only 0 needs no unit.
Result<double> ParseFraction(std::string_view text);
// As ParseFraction reads it: "12.5%".
std::string PercentText(double fraction);

// A whole number from `least` to `most`; nothing else may stand in `text`.
Result<std::uint64_t> ParseCount(std::string_view text, std::uint64_t least, std::uint64_t most);

// "0-3,6": the numbers and ranges of processors, ascending.
Result<std::vector<std::uint32_t>> ParseCpuList(std::string_view text);
// "0,1,2,6"
std::string CpuListText(const std::vector<std::uint32_t>& processors);

// "high=2s,low=1s" has two. Always at least one, which may be empty. Views of `list`.
std::vector<std::string_view> SplitAtCommas(std::string_view list);

// An amount of one device's memory: bytes, or a part of whatever the device has.
//
// Thread-compatible value.
struct MemoryQuota {
  std::uint64_t bytes = 0;  // Used when fraction is 0.
  double fraction = 1.0;    // Of the device's memory; 0 when `bytes` counts.

  // No more than the device has.
  std::uint64_t Of(std::uint64_t device_bytes) const;
  // Of memory that need not all be on the device: a size counts as it is.
  std::uint64_t LimitFor(std::uint64_t device_bytes) const;
  std::string ToString() const;
  friend bool operator==(const MemoryQuota&, const MemoryQuota&) = default;
};
Result<MemoryQuota> ParseMemoryQuota(std::string_view text);

// A name of scheduler::kClassNames.
std::optional<scheduler::SchedulingClass> ParseClass(std::string_view text);

// Takes "low=2s,normal=10s" apart; each class at most once. `set` rejects what follows the '='.
Status ForEachClass(std::string_view text, std::string_view example,
                    const std::function<Status(std::size_t of_class, std::string_view text)>& set);
// The other way round, of the classes for which `text_of` is not empty.
std::string ByClass(const std::function<std::string(std::size_t of_class)>& text_of);

// In the largest unit that leaves a readable number: "2 ms", "1.5 GiB".
std::string FormatDuration(std::chrono::nanoseconds duration);
std::string FormatBytes(std::uint64_t bytes);
// Exactly, as ParseDuration and ParseBytes read it: "2ms", "1536MiB".
std::string DurationText(std::chrono::nanoseconds duration);
std::string BytesText(std::uint64_t bytes);

// "fifo, fair and priority".
std::string Listed(std::span<const std::string_view> names, std::string_view last = " and ");

// The rejection "asked for '<asked>', allowed is <allowed>".
Status NotAllowed(std::string_view asked, std::string_view allowed);

// Text that somebody else wrote, safe to show on a terminal and in a log: control bytes and
// non-ASCII become \xNN, and more than `bytes_max` bytes are cut with "...".
std::string Escaped(std::string_view text, std::size_t bytes_max = 128);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CONFIG_CONFIG_VALUES_H_
