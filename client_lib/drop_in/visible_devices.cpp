// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/visible_devices.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace gpushared::drop_in {
namespace {

std::string_view Trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// The device that one entry names; a beginning of a UUID must fit one only.
std::optional<std::size_t> Named(std::string_view entry, const std::vector<Uuid>& uuids) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  if (error == std::errc() && end == entry.data() + entry.size()) {
    return number < uuids.size() ? std::optional(number) : std::nullopt;
  }
  if (!entry.starts_with("GPU-")) return std::nullopt;
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < uuids.size(); ++i) {
    if (!UuidText(uuids[i]).starts_with(entry)) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

}  // namespace

std::string UuidText(const Uuid& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::vector<std::size_t> VisibleDevices(std::string_view value, const std::vector<Uuid>& uuids) {
  std::vector<std::size_t> shown;
  while (!value.empty()) {
    const std::size_t comma = std::min(value.find(','), value.size());
    const std::optional<std::size_t> device = Named(Trimmed(value.substr(0, comma)), uuids);
    if (!device) break;
    if (std::find(shown.begin(), shown.end(), *device) != shown.end()) return {};
    shown.push_back(*device);
    value.remove_prefix(std::min(comma + 1, value.size()));
  }
  return shown;
}

}  // namespace gpushared::drop_in
