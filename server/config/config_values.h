// SPDX-License-Identifier: Apache-2.0
// Quantities in the configuration: durations, sizes, fractions. A parser accepts only text that is
// valid as a whole; its error states what was given and what is allowed.

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

// Parses "250ns", "500us", "2ms", "1.5s": a number of at most 18 characters and a unit, without a
// sign.
Result<std::chrono::nanoseconds> ParseDuration(std::string_view text);

// Parses "4GiB", "512MiB", "64KiB", "4096B": a number and a binary unit. A bare number is rejected,
// because it would be unclear whether it means bytes.
Result<std::uint64_t> ParseBytes(std::string_view text);

// Parses "25%" as 0.25, from 0% to 100%. A bare number is rejected, because 0.5 could mean a half
// or half a percent; only 0 needs no unit.
Result<double> ParseFraction(std::string_view text);
// Formats a fraction in the syntax of ParseFraction: "12.5%".
std::string PercentText(double fraction);

// Parses a whole number from `least` to `most`, without any other text.
Result<std::uint64_t> ParseCount(std::string_view text, std::uint64_t least, std::uint64_t most);

// Parses numbers and ranges of processors, such as "0-3,6". The result is ascending.
Result<std::vector<std::uint32_t>> ParseCpuList(std::string_view text);
// Formats a list such as "0,1,2,6".
std::string CpuListText(const std::vector<std::uint32_t>& processors);

// Splits "high=2s,low=1s" into two parts. Returns at least one part, which may be empty. The parts
// are views of `list`.
std::vector<std::string_view> SplitAtCommas(std::string_view list);

// An amount of one device's memory: a number of bytes, or a fraction of the device's memory.
struct MemoryQuota {
  std::uint64_t bytes = 0;  // Amount in bytes; used if fraction is 0.
  double fraction = 1.0;    // Fraction of the device's memory; 0 if `bytes` applies.

  // Returns the amount, at most the device's memory.
  std::uint64_t Of(std::uint64_t device_bytes) const;
  // Returns the amount as a limit of memory that need not be resident as a whole, so a size may
  // exceed the device's memory.
  std::uint64_t LimitFor(std::uint64_t device_bytes) const;
  std::string ToString() const;
  friend bool operator==(const MemoryQuota&, const MemoryQuota&) = default;
};
Result<MemoryQuota> ParseMemoryQuota(std::string_view text);

// Parses a name in scheduler::kClassNames.
std::optional<scheduler::SchedulingClass> ParseClass(std::string_view text);

// Splits text such as "low=2s,normal=10s"; each class may occur at most once. `set` parses the text
// after the '='.
Status ForEachClass(std::string_view text, std::string_view example,
                    const std::function<Status(std::size_t of_class, std::string_view text)>& set);
// Inverse of ForEachClass, for the classes for which `text_of` is not empty.
std::string ByClass(const std::function<std::string(std::size_t of_class)>& text_of);

// Formats a value in the largest unit that gives a readable number: "2 ms", "1.5 GiB".
std::string FormatDuration(std::chrono::nanoseconds duration);
std::string FormatBytes(std::uint64_t bytes);
// Formats a value exactly, in the syntax of ParseDuration and ParseBytes: "2ms", "1536MiB".
std::string DurationText(std::chrono::nanoseconds duration);
std::string BytesText(std::uint64_t bytes);

// Formats a list such as "fifo, fair and priority".
std::string Listed(std::span<const std::string_view> names, std::string_view last = " and ");

// Returns the error "asked for '<asked>', allowed: <allowed>".
Status NotAllowed(std::string_view asked, std::string_view allowed);

// Returns untrusted text in a form that is safe for terminals and logs: control bytes, backslashes
// and non-ASCII bytes become \xNN, and text beyond `bytes_max` bytes is replaced by "...".
std::string Escaped(std::string_view text, std::size_t bytes_max = 128);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CONFIG_CONFIG_VALUES_H_
