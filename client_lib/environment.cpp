// SPDX-License-Identifier: Apache-2.0
#include "client_lib/environment.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <utility>

#include "ipc/share.h"
#include "ipc/wire/bytes.h"
#include "ipc/wire/control.h"

namespace gpushared::client {
namespace {

constexpr const char* kClass = "GPUSHARED_CLASS";
constexpr const char* kWeight = "GPUSHARED_WEIGHT";
constexpr const char* kMaxShare = "GPUSHARED_MAX_SHARE";
constexpr const char* kPromise = "GPUSHARED_LATENCY_TARGET";
constexpr const char* kMemory = "GPUSHARED_MEMORY";
constexpr const char* kName = "GPUSHARED_NAME";
constexpr const char* kDevice = "GPUSHARED_DEVICE";
constexpr const char* kInterrupt = "GPUSHARED_INTERRUPT";
constexpr const char* kMpsPriority = "CUDA_MPS_CLIENT_PRIORITY";
constexpr const char* kMpsShare = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
constexpr const char* kMpsLimit = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";
constexpr double kPromiseMsMost = 3.6e6;

Status InvalidValue(const char* variable, std::string_view value, const std::string& allowed) {
  return Status(StatusCode::kInvalidArgument, std::string(variable) + "='" + std::string(value) +
                                                  "' is invalid: expected " + allowed);
}

template <typename Number>
bool Parse(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// Parses sizes such as "4GiB", "512MB", "1G" and "1g". Units are binary, as in MPS. No value for
// anything else, including zero.
std::optional<std::uint64_t> ParseBytes(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::uint64_t number = 0;
  if (digits == text.size() || !Parse(text.substr(0, digits), number)) return std::nullopt;
  std::string_view unit = text.substr(digits);
  constexpr std::string_view kLetters = "KMGT", kSmall = "kmgt";
  std::uint64_t scale = 1;
  const std::size_t small = kSmall.find(unit.front());
  if (const std::size_t power =
          small != std::string_view::npos ? small : kLetters.find(unit.front());
      power != std::string_view::npos) {
    scale <<= 10 * (power + 1);
    unit.remove_prefix(1);
    if (!unit.empty() && unit != "B" && unit != "iB") return std::nullopt;
  } else if (unit != "B") {
    return std::nullopt;
  }
  if (number == 0 || number > std::numeric_limits<std::uint64_t>::max() / scale) {
    return std::nullopt;
  }
  return number * scale;
}

// Returns the index in the server's list of the device that an entry of kMpsLimit names.
std::optional<std::size_t> GetPlace(std::string_view name, std::span<const KnownDevice> devices) {
  const std::vector<std::size_t> places = VisibleDevices(name, devices);
  return places.size() == 1 ? std::optional(places[0]) : std::nullopt;
}

}  // namespace

Environment::Variables Environment::Real() {
  // gpushared does not modify the environment.
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  return [](const char* name) { return static_cast<const char*>(std::getenv(name)); };
}

std::string_view Environment::Text(const char* variable) const {
  const char* const value = variables_(variable);
  return value == nullptr ? "" : value;
}

Status Environment::ApplyName(const char* variable, std::string& name) const {
  if (!name.empty()) return Status::Ok();
  name = Text(variable);
  if (name.size() < ipc::kNameBytes && ipc::IsPrintableText(name)) return Status::Ok();
  // The message omits the value, because it may contain control characters.
  return Status(StatusCode::kInvalidArgument, std::string(variable) +
                                                  " is invalid: expected at most " +
                                                  std::to_string(ipc::kNameBytes - 1) +
                                                  " bytes of UTF-8 without control characters");
}

Status Environment::Apply(ClientOptions& options) const {
  if (Status status = ApplyName(kName, options.name); !status.ok()) return status;
  if (Status status = ApplyName(kDevice, options.device); !status.ok()) return status;
  for (Status (Environment::*apply)(ClientOptions&) const :
       {&Environment::ApplyClass, &Environment::ApplyWeight, &Environment::ApplyMaxShare,
        &Environment::ApplyLatencyTarget, &Environment::ApplyMemory,
        &Environment::ApplyInterrupt}) {
    if (Status status = (this->*apply)(options); !status.ok()) return status;
  }
  return Status::Ok();
}

Status Environment::ApplyInterrupt(ClientOptions& options) const {
  if (options.ends_on_interrupt) return Status::Ok();
  const std::string_view value = Text(kInterrupt);
  if (!value.empty() && value != "0" && value != "1")
    return InvalidValue(kInterrupt, value, "0 or 1");
  options.ends_on_interrupt = value == "1";
  return Status::Ok();
}

Status Environment::ApplyClass(ClientOptions& options) const {
  if (options.scheduling_class) return Status::Ok();
  if (const std::string_view name = Text(kClass); !name.empty()) {
    if (name == "high") options.scheduling_class = SchedulingClass::kHigh;
    if (name == "normal") options.scheduling_class = SchedulingClass::kNormal;
    if (name == "low") options.scheduling_class = SchedulingClass::kLow;
    return options.scheduling_class ? Status::Ok()
                                    : InvalidValue(kClass, name, "high, normal or low");
  }
  if (const std::string_view priority = Text(kMpsPriority); !priority.empty()) {
    if (priority == "0") options.scheduling_class = SchedulingClass::kNormal;
    if (priority == "1") options.scheduling_class = SchedulingClass::kLow;
    return options.scheduling_class
               ? Status::Ok()
               : InvalidValue(kMpsPriority, priority, "0 (class normal) or 1 (class low)");
  }
  return Status::Ok();
}

Status Environment::ApplyWeight(ClientOptions& options) const {
  const std::string_view text = Text(kWeight);
  if (options.weight || text.empty()) return Status::Ok();
  std::uint32_t weight = 0;
  if (!Parse(text, weight) || weight == 0 || weight > kWeightMax) {
    return InvalidValue(kWeight, text, "1 to " + std::to_string(kWeightMax));
  }
  options.weight = weight;
  return Status::Ok();
}

Status Environment::ApplyMaxShare(ClientOptions& options) const {
  if (options.max_share) return Status::Ok();
  // The MPS variable is a plain number; ours has a unit.
  for (const char* const variable : {kMaxShare, kMpsShare}) {
    const std::string_view text = Text(variable);
    if (text.empty()) continue;
    const bool is_ours = variable == kMaxShare;
    const Result<std::uint32_t> share = ipc::ParseShare(std::string(text) + (is_ours ? "" : "%"));
    if (!share.ok()) {
      return InvalidValue(
          variable, text,
          is_ours ? "0.1% to 100% of device time" : "0.1 to 100, percent of device time");
    }
    options.max_share = *share / 10.0;
    return Status::Ok();
  }
  return Status::Ok();
}

Status Environment::ApplyLatencyTarget(ClientOptions& options) const {
  const std::string_view text = Text(kPromise);
  if (options.latency_target || text.empty()) return Status::Ok();
  double milliseconds = 0;
  if (!Parse(text, milliseconds) || !(milliseconds > 0) || milliseconds > kPromiseMsMost) {
    return InvalidValue(kPromise, text, "milliseconds, at most one hour");
  }
  options.latency_target = std::chrono::nanoseconds(static_cast<std::int64_t>(milliseconds * 1e6));
  return Status::Ok();
}

Status Environment::ApplyMemory(ClientOptions& options) const {
  const std::string_view text = Text(kMemory);
  if (options.memory_bytes || text.empty()) return Status::Ok();
  options.memory_bytes = ParseBytes(text);
  return options.memory_bytes ? Status::Ok()
                              : InvalidValue(kMemory, text, "a size such as 4GiB or 512MiB");
}

bool Environment::NamesDevices(const ClientOptions& options) const {
  const bool asks_for_device = options.device.empty() && variables_(kVisible) != nullptr;
  return asks_for_device || (!options.memory_bytes && !Text(kMpsLimit).empty());
}

Status Environment::ApplyDevices(std::span<const KnownDevice> devices,
                                 ClientOptions& options) const {
  if (options.device.empty() && variables_(kVisible) != nullptr) {
    const char* const visible = variables_(kVisible);
    const std::vector<std::size_t> shown = VisibleDevices(visible, devices);
    if (shown.empty()) {
      return Status(StatusCode::kNotFound, std::string(kVisible) + "='" + visible +
                                               "' shows none of the server's " +
                                               std::to_string(devices.size()) + " devices");
    }
    options.device = devices[shown.front()].id;
  }
  if (options.memory_bytes || Text(kMpsLimit).empty()) return Status::Ok();
  const Result<std::optional<std::uint64_t>> limit = PinnedLimit(devices, options.device);
  if (limit.ok()) options.memory_bytes = *limit;
  return limit.status();
}

// Returns whether the name could be a device of some server. Such names are not rejected, because
// NVIDIA's examples also list devices that a machine lacks.
bool IsDeviceName(std::string_view name) {
  const bool is_number =
      !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
  return is_number || name.starts_with("GPU-") || name.starts_with("MIG-");
}

std::string_view WithoutBlanks(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// Parses "0=1G,GPU-aa11=512MB". Ignores entries for devices that the server does not have.
Result<std::optional<std::uint64_t>> Environment::PinnedLimit(std::span<const KnownDevice> devices,
                                                              const std::string& device) const {
  const std::string_view text = Text(kMpsLimit);
  std::vector<std::optional<std::uint64_t>> limits(devices.size());
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view entry = WithoutBlanks(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const std::size_t equals = std::min(entry.find('='), entry.size());
    const std::string_view name = WithoutBlanks(entry.substr(0, equals));
    const std::optional<std::size_t> place = GetPlace(name, devices);
    const std::optional<std::uint64_t> bytes =
        equals < entry.size() ? ParseBytes(WithoutBlanks(entry.substr(equals + 1))) : std::nullopt;
    if (!place && bytes && IsDeviceName(name)) continue;
    if (!place || !bytes) {
      return InvalidValue(kMpsLimit, text,
                          "devices and sizes such as 0=1G,1=512MB; the server has " +
                              std::to_string(devices.size()) + " devices");
    }
    limits[*place] = bytes;
  }
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].id == device) return limits[i];
  }
  const bool is_one =
      std::ranges::all_of(limits, [&](const auto& each) { return each == limits[0]; });
  if (device.empty() && !limits.empty() && is_one) return limits[0];
  return InvalidValue(kMpsLimit, text,
                      "a limit for a known device: name it with GPUSHARED_DEVICE or "
                      "CUDA_VISIBLE_DEVICES");
}

Result<std::vector<std::size_t>> Environment::Shown(std::span<const KnownDevice> devices) const {
  const std::string_view named = Text(kDevice);
  const char* const visible = variables_(kVisible);
  if (named.empty() && visible != nullptr) return VisibleDevices(visible, devices);
  std::vector<std::size_t> shown;
  std::string known;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    known += " " + devices[i].id;
    if (named.empty() || devices[i].id == named) shown.push_back(i);
  }
  if (named.empty() || !shown.empty()) return shown;
  return Status(StatusCode::kNotFound, std::string(kDevice) + "='" + std::string(named) +
                                           "' names no device: the server has" + known);
}

}  // namespace gpushared::client
