// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/script.h"

#include <cstdlib>
#include <sstream>
#include <vector>

namespace gpushared::testing::fake_cuda {
namespace {

using device::cuda::Code;
using device::cuda::DeviceAttribute;

std::optional<long long> GetNumber(const std::string& text) {
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || *end != 0) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> GetBytes(std::string text) {
  int shift = 0;
  if (!text.empty()) {
    const char last = text.back();
    shift = last == 'K' ? 10 : last == 'M' ? 20 : last == 'G' ? 30 : 0;
    if (shift != 0) text.pop_back();
  }
  const auto value = GetNumber(text);
  if (!value || *value < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*value) << shift;
}

void Set(Settings& settings, DeviceAttribute which, int value) {
  settings.attributes[static_cast<int>(which)] = value;
}

}  // namespace

// The defaults are values of an H200.
Settings::Settings() {
  Set(*this, DeviceAttribute::kThreadsPerBlockMax, 1024);
  Set(*this, DeviceAttribute::kBlockXMax, 1024);
  Set(*this, DeviceAttribute::kBlockYMax, 1024);
  Set(*this, DeviceAttribute::kBlockZMax, 64);
  Set(*this, DeviceAttribute::kGridXMax, 2147483647);
  Set(*this, DeviceAttribute::kGridYMax, 65535);
  Set(*this, DeviceAttribute::kGridZMax, 65535);
  Set(*this, DeviceAttribute::kTexture2dWidthMax, 131072);
  Set(*this, DeviceAttribute::kTexture2dHeightMax, 65536);
  Set(*this, DeviceAttribute::kTexture2dLinearWidthMax, 131072);
  Set(*this, DeviceAttribute::kSurface3dDepthMax, 16384);
  Set(*this, DeviceAttribute::kSharedBytesPerBlockMax, 48 * 1024);
  Set(*this, DeviceAttribute::kSharedBytesPerBlockOptIn, 227 * 1024);
  Set(*this, DeviceAttribute::kReservedSharedBytesPerBlock, 1024);
  Set(*this, DeviceAttribute::kWarpThreads, 32);
  Set(*this, DeviceAttribute::kMultiprocessors, 132);
  Set(*this, DeviceAttribute::kThreadsPerMultiprocessorMax, 2048);
  Set(*this, DeviceAttribute::kComputeMode, 0);
  Set(*this, DeviceAttribute::kConcurrentKernels, 1);
  Set(*this, DeviceAttribute::kMemoryClockKilohertz, 3201000);
  Set(*this, DeviceAttribute::kMemoryBusBits, 6144);
  Set(*this, DeviceAttribute::kCopyEngines, 3);
  Set(*this, DeviceAttribute::kUnifiedAddressing, 1);
  Set(*this, DeviceAttribute::kComputeCapabilityMajor, 9);
  Set(*this, DeviceAttribute::kComputeCapabilityMinor, 0);
  Set(*this, DeviceAttribute::kStreamPriorities, 1);
  Set(*this, DeviceAttribute::kComputePreemption, 1);
  Set(*this, DeviceAttribute::kHostPointerForRegisteredMemory, 1);
  Set(*this, DeviceAttribute::kCooperativeLaunch, 1);
  Set(*this, DeviceAttribute::kHostRegister, 1);
  Set(*this, DeviceAttribute::kVirtualMemory, 1);
  Set(*this, DeviceAttribute::kReadOnlyHostRegister, 1);
  Set(*this, DeviceAttribute::kClusterLaunch, 1);
  Set(*this, DeviceAttribute::kStreamMemoryOperations64, 1);
  Set(*this, DeviceAttribute::kMpsEnabled, 0);
}

std::string Settings::Apply(std::string_view statements) {
  while (!statements.empty()) {
    const std::size_t end = statements.find(';');
    const std::string_view one = statements.substr(0, end);
    if (!ApplyOne(one)) return "fake_cuda: not understood: " + std::string(one);
    statements.remove_prefix(end == std::string_view::npos ? statements.size() : end + 1);
  }
  return "";
}

bool Settings::ApplyOne(std::string_view statement) {
  std::istringstream stream{std::string(statement)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  if (words.empty()) return true;
  const std::string& verb = words[0];
  const auto number = [&](std::size_t index) {
    return index < words.size() ? GetNumber(words[index]) : std::nullopt;
  };
  const auto code = [&](std::size_t index) {
    return static_cast<Code>(number(index).value_or(999));
  };
  if (words.size() == 1 && (verb == "hold" || verb == "go")) {
    held = verb == "hold";
  } else if (words.size() == 2 && verb == "version" && number(1)) {
    version = static_cast<int>(*number(1));
  } else if (words.size() == 2 && verb == "devices" && number(1) && *number(1) <= 8) {
    devices = static_cast<int>(*number(1));
  } else if (words.size() == 3 && verb == "uuid" && number(1)) {
    uuids[static_cast<int>(*number(1))] = words[2];
  } else if (words.size() == 2 && verb == "memory" && GetBytes(words[1])) {
    memory_bytes = *GetBytes(words[1]);
  } else if (words.size() == 2 && verb == "local" &&
             (words[1] == "at_once" || words[1] == "lazily")) {
    local_memory = words[1] == "lazily" ? LocalMemory::kLazily : LocalMemory::kAtOnce;
  } else if (words.size() == 2 && verb == "sms" && number(1)) {
    Set(*this, DeviceAttribute::kMultiprocessors, static_cast<int>(*number(1)));
  } else if (words.size() == 3 && verb == "attribute" && number(1) && number(2)) {
    attributes[static_cast<int>(*number(1))] = static_cast<int>(*number(2));
  } else if (words.size() == 4 && verb == "attribute" && words[2] == "fails" && number(1) &&
             number(3)) {
    attribute_fails[static_cast<int>(*number(1))] = code(3);
  } else if (words.size() == 3 && verb == "clock" && number(1) && number(2)) {
    clock_ahead_ms = *number(1);
    clock_faster_ppm = *number(2);
  } else if (words.size() == 2 && verb == "kernels" && number(1)) {
    kernel_ms = *number(1);
  } else if (words.size() == 2 && verb == "costs" && words[1] == "on") {
    costs.emplace();
  } else if (words.size() == 2 && verb == "lock" && (words[1] == "on" || words[1] == "off")) {
    has_lock = words[1] == "on";
  } else if (words.size() == 3 && verb == "cost" && number(2) && *number(2) >= 0 && costs &&
             costs->Named(words[1]) != nullptr) {
    *costs->Named(words[1]) = static_cast<std::uint64_t>(*number(2));
  } else if (words.size() == 3 && verb == "copies" && words[1] == "wrong" && GetBytes(words[2])) {
    wrong_copy_bytes = GetBytes(words[2]);
  } else if (words.size() == 2 && verb == "green" && words[1] == "strict") {
    green_strict = true;
  } else if (words.size() == 2 && verb == "words" && words[1] == "lost") {
    words_lost = true;
  } else if (words.size() == 2 && verb == "leftover" && number(1)) {
    leftover = static_cast<std::uint8_t>(*number(1));
  } else if (words.size() == 2 && verb == "missing") {
    missing.insert(words[1]);
  } else if (words.size() == 4 && (verb == "fail" || verb == "fail_late") && number(3) &&
             (words[2] == "*" || number(2))) {
    FailRule rule{.call = words[1], .code = code(3), .late = verb == "fail_late"};
    if (words[2] != "*") rule.after = static_cast<std::size_t>(*number(2));
    fails.push_back(rule);
  } else if (words.size() == 3 && verb == "fault" && number(1) && number(2)) {
    faults.push_back({.call = "", .after = static_cast<std::size_t>(*number(1)), .code = code(2)});
  } else if (words.size() == 3 && verb == "slow" && number(2)) {
    slow_ms[words[1]] = *number(2);
  } else if (words.size() == 2 && verb == "sticky" && number(1)) {
    sticky = code(1);
  } else if (words.size() == 2 && verb == "log") {
    log_path = words[1];
  } else if (words.size() == 2 && verb == "control") {
    control_path = words[1];
  } else if (words.size() == 2 && verb == "leaks" && words[1] == "ignored") {
    leaks_ignored = true;
  } else {
    return false;
  }
  return true;
}

std::optional<FailRule> Strike(std::list<FailRule>& rules, std::string_view call) {
  std::optional<FailRule> struck;
  for (auto rule = rules.begin(); rule != rules.end();) {
    if (rule->call != call) {
      ++rule;
    } else if (!rule->after) {
      if (!struck) struck = *rule;
      ++rule;
    } else if (--*rule->after == 0) {
      if (!struck) struck = *rule;
      rule = rules.erase(rule);
    } else {
      ++rule;
    }
  }
  return struck;
}

}  // namespace gpushared::testing::fake_cuda
