// SPDX-License-Identifier: Apache-2.0
#include "client_lib/streaming_copy.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace gpushared::client {

#if defined(__x86_64__)

void StreamingCopy(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kLineBytes = 64;
  // Copies bytes up to the first whole cache line, because a partial line would be read first.
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(to) % kLineBytes;
  const std::size_t head = std::min((kLineBytes - misaligned) % kLineBytes, bytes);
  std::memcpy(to, from, head);
  std::size_t at = head;
  for (; bytes - at >= kLineBytes; at += kLineBytes) {
    const auto* const source = reinterpret_cast<const __m128i*>(from + at);
    auto* const target = reinterpret_cast<__m128i*>(to + at);
    const __m128i first = _mm_loadu_si128(source), second = _mm_loadu_si128(source + 1),
                  third = _mm_loadu_si128(source + 2), fourth = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, first);
    _mm_stream_si128(target + 1, second);
    _mm_stream_si128(target + 2, third);
    _mm_stream_si128(target + 3, fourth);
  }
  std::memcpy(to + at, from + at, bytes - at);
  // Orders the streaming stores before later stores that announce them to other threads.
  _mm_sfence();
}

#else

void StreamingCopy(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

#endif

}  // namespace gpushared::client
