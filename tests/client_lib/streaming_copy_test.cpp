// SPDX-License-Identifier: Apache-2.0
#include "client_lib/streaming_copy.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace gpushared::client {
namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::byte kUntouched{0xee};

// Neighbouring bytes differ, and none is kUntouched.
std::vector<std::byte> Pattern(std::size_t bytes) {
  std::vector<std::byte> pattern(bytes);
  for (std::size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<std::byte>(i % 199);
  return pattern;
}

TEST(StreamingCopy, WritesTheseBytesAndNoOthersAtEveryAlignment) {
  const std::vector<std::byte> source = Pattern(5 * kLineBytes);
  for (std::size_t to = 0; to < kLineBytes; ++to) {
    for (const std::size_t from : {0, 1, 15, 16, 63}) {
      for (const std::size_t bytes : {0, 1, 15, 63, 64, 65, 127, 128, 200, 256}) {
        alignas(kLineBytes) std::array<std::byte, 6 * kLineBytes> target;
        target.fill(kUntouched);
        StreamingCopy(target.data() + to, source.data() + from, bytes);
        const auto begin = target.begin() + static_cast<std::ptrdiff_t>(to);
        const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
        const auto is_untouched = [](std::byte each) { return each == kUntouched; };
        ASSERT_TRUE(std::equal(begin, end, source.begin() + static_cast<std::ptrdiff_t>(from)))
            << bytes << " bytes from " << from << " to " << to;
        ASSERT_TRUE(std::all_of(target.begin(), begin, is_untouched)) << bytes << " to " << to;
        ASSERT_TRUE(std::all_of(end, target.end(), is_untouched)) << bytes << " to " << to;
      }
    }
  }
}

}  // namespace
}  // namespace gpushared::client
