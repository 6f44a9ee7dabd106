// SPDX-License-Identifier: Apache-2.0
#include "server/device/non_resident_pages.h"

#include <algorithm>
#include <bit>

#include "server/device/memory_budget.h"

namespace gpushared::device {

NonResidentPages::NonResidentPages(std::uint64_t quota_bytes)
    : words_(quota_bytes == 0
                 ? nullptr
                 : std::make_unique<Word[]>(RoundUp(quota_bytes, kPagesPerWord * kMapPageBytes) /
                                            (kPagesPerWord * kMapPageBytes))) {}

void NonResidentPages::Set(std::size_t step, bool is_away) {
  Word& word = words_[step / kPagesPerWord];
  const std::uint64_t bit = std::uint64_t{1} << (step % kPagesPerWord);
  // Relaxed: only this thread changes the word.
  const std::uint64_t before = word.load(std::memory_order_relaxed);
  const std::uint64_t after = is_away ? before | bit : before & ~bit;
  if (after == before) return;
  const std::uint64_t bytes = bytes_.load(std::memory_order_relaxed);
  // Release: a thread that sees a page as resident may use it.
  word.store(after, std::memory_order_release);
  bytes_.store(is_away ? bytes + kMapPageBytes : bytes - kMapPageBytes, std::memory_order_release);
}

std::uint64_t NonResidentPages::BytesIn(const MappedRange& mapped, std::uint64_t address,
                                        std::uint64_t bytes) const {
  const std::uint64_t begin = address - mapped.base;
  if (this->bytes() == 0 || bytes == 0 || begin >= mapped.mapped_bytes) return 0;
  const std::uint64_t end = begin + std::min(bytes, mapped.mapped_bytes - begin);
  std::uint64_t away = 0;
  const std::size_t last = (end - 1) / kMapPageBytes;
  for (std::size_t step = begin / kMapPageBytes; step <= last;) {
    const std::size_t in_word = step % kPagesPerWord;
    const std::size_t count = std::min(kPagesPerWord - in_word, last - step + 1);
    // Acquire: pairs with the release in Set.
    const std::uint64_t word = words_[step / kPagesPerWord].load(std::memory_order_acquire);
    const std::uint64_t found = (word >> in_word) & (~std::uint64_t{0} >> (kPagesPerWord - count));
    // Most words are zero, so the slower count of bits is skipped for these.
    if (found != 0) away += static_cast<std::uint64_t>(std::popcount(found));
    step += count;
  }
  return away * kMapPageBytes;
}

bool NonResidentPages::IsResident(const MappedRange& mapped, const Reach& reach) const {
  if (bytes() == 0) return true;
  if (reach.is_everything()) return false;
  return std::ranges::all_of(reach.pieces(), [&](const MemoryPiece& piece) {
    return BytesIn(mapped, piece.base, piece.bytes) == 0;
  });
}

}  // namespace gpushared::device
