// SPDX-License-Identifier: Apache-2.0
#include "server/platform/numa.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <climits>
#include <fstream>
#include <system_error>

namespace gpushared::server {

namespace {

constexpr std::uint32_t kNodesMax = 1024;  // Maximum for which Linux can be configured.
// Longer sysfs files have an unknown format.
constexpr std::size_t kTextMax = 4096;

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line(kTextMax, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(file.gcount()));
  return line.substr(0, line.find('\n'));
}

std::optional<std::uint32_t> NumberIn(std::string_view text, std::uint32_t most) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > most) return {};
  return value;
}

// Parses a list such as "0-15,32-47"; no value if the text has a different format.
std::optional<std::vector<std::uint32_t>> ListIn(std::string_view text, std::uint32_t most) {
  std::vector<std::uint32_t> numbers;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const std::size_t dash = item.find('-');
    const auto first = NumberIn(item.substr(0, dash), most);
    const auto last =
        dash == std::string_view::npos ? first : NumberIn(item.substr(dash + 1), most);
    if (!first || !last) return {};
    for (std::uint32_t each = *first; each <= *last; ++each) numbers.push_back(each);
    if (numbers.size() > most) return {};
  }
  return numbers;
}

std::string GetText(const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
    if (end - i > 1) text += "-" + std::to_string(numbers[end - 1]);
    i = end;
  }
  return text;
}

// Accepts both the driver's notation and NVML's, which has a longer domain.
std::string GetBus(std::string_view pci_bus) {
  constexpr std::size_t kShort = 12;  // "0000:17:00.0"
  std::string bus(pci_bus.substr(pci_bus.size() - std::min(pci_bus.size(), kShort)));
  std::ranges::transform(bus, bus.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  return bus;
}

bool IsBus(std::string_view bus) {
  return std::ranges::all_of(bus, [](unsigned char letter) {
    return std::isxdigit(letter) != 0 || letter == ':' || letter == '.';
  });
}

}  // namespace

std::string NumaPlace::ToString() const {
  if (!node) return why_none;
  return "node " + std::to_string(*node) + ", processors " + GetText(processors);
}

NumaPlace FindNumaPlace(std::string_view pci_bus, const std::string& sysfs) {
  NumaPlace place;
  if (pci_bus.empty()) return place;
  const auto nodes = ListIn(ReadLine(sysfs + "/devices/system/node/online"), kNodesMax);
  if (!nodes || nodes->size() < 2) {
    place.why_none = "the machine has one memory node: nothing to choose";
    return place;
  }
  const std::string bus = GetBus(pci_bus);
  std::optional<std::uint32_t> node;
  if (IsBus(bus)) {
    node = NumberIn(ReadLine(sysfs + "/bus/pci/devices/" + bus + "/numa_node"), kNodesMax);
  }
  if (!node || std::ranges::find(*nodes, *node) == nodes->end()) {
    place.why_none = "the machine does not report at which of its " +
                     std::to_string(nodes->size()) + " memory nodes " + bus + " is";
    return place;
  }
  const std::string of_node = sysfs + "/devices/system/node/node" + std::to_string(*node);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  (void)::sched_getaffinity(0, sizeof allowed, &allowed);
  for (const std::uint32_t each :
       ListIn(ReadLine(of_node + "/cpulist"), CPU_SETSIZE - 1).value_or(place.processors)) {
    if (CPU_ISSET(each, &allowed)) place.processors.push_back(each);
  }
  if (place.processors.empty()) {
    place.why_none = "this process may use no processor of memory node " + std::to_string(*node) +
                     ", at which " + bus + " is";
    return place;
  }
  place.node = node;
  return place;
}

Status KeepThisThreadAt(const NumaPlace& place) {
  if (!place.node) return {};
  cpu_set_t processors;
  CPU_ZERO(&processors);
  for (const std::uint32_t each : place.processors) CPU_SET(each, &processors);
  if (::sched_setaffinity(0, sizeof processors, &processors) != 0) {
    return {StatusCode::kUnavailable, "threads cannot be kept at " + place.ToString() + ": " +
                                          std::generic_category().message(errno)};
  }
  constexpr std::size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, kNodesMax / kBits + 1> nodes = {};
  nodes.at(*place.node / kBits) = 1UL << (*place.node % kBits);
  // The policy is preferred instead of strict, so that no process is killed when the node has no
  // free memory.
  if (::syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes.data(), nodes.size() * kBits) != 0) {
    return {StatusCode::kUnavailable, "memory cannot be taken at node " +
                                          std::to_string(*place.node) + ": " +
                                          std::generic_category().message(errno)};
  }
  return {};
}

}  // namespace gpushared::server
