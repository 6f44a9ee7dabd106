// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_SHOWN_NAME_H_
#define GPUSHARED_SERVER_DEVICE_SHOWN_NAME_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace gpushared::device {

inline constexpr std::size_t kShownNameBytesMax = 100;

// Returns a name chosen by a client as it appears in messages; long names are cut at a character
// boundary.
inline std::string ShownName(std::string_view name, std::size_t bytes_max = kShownNameBytesMax) {
  if (name.size() <= bytes_max) return std::string(name);
  std::size_t bytes = bytes_max;
  while (bytes > 0 && (static_cast<unsigned char>(name[bytes]) & 0xc0) == 0x80) --bytes;
  return std::string(name.substr(0, bytes)) + "...";
}

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_SHOWN_NAME_H_
