// SPDX-License-Identifier: Apache-2.0
// Shared memory of a trace: two rings that one thread of a worker writes and any process may read.

#ifndef GPUSHARED_SERVER_TELEMETRY_TRACE_LAYOUT_H_
#define GPUSHARED_SERVER_TELEMETRY_TRACE_LAYOUT_H_

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace gpushared::trace {

inline constexpr std::size_t kEventWords = 16;  // One cache line, so the writer fills whole lines.
inline constexpr std::size_t kNameWords = 32;
// Capacity for the events of 40 ms at 3 million a second, and of a second under usual loads.
inline constexpr std::size_t kEventsMax = std::size_t{1} << 17;
inline constexpr std::size_t kNamesMax = std::size_t{1} << 12;
inline constexpr std::size_t kNameBytesMax = 96;

// 32 bits, so that the lower half of a time is a word and no shift is necessary.
using Word = std::uint32_t;
using EventWords = std::array<Word, kEventWords>;
using NameWords = std::array<Word, kNameWords>;

// Ring of the last kSlots records of kWords words. The writer never waits and overwrites the oldest
// record. The words are atomic because a reader may copy a record while it is being overwritten;
// `written` then shows the reader that the copy is invalid.
template <std::size_t kWords, std::size_t kSlots>
struct Ring {
  static constexpr std::size_t kWordsPerSlot = kWords;
  static constexpr std::size_t kSlotsMax = kSlots;
  static_assert(std::has_single_bit(kSlots));
  using Words = std::array<Word, kWords>;
  using Slot = std::array<std::atomic<Word>, kWords>;

  // Distance of the writer's prefetch, about a microsecond of commands. The array has as many extra
  // slots, so that the prefetch need not wrap around.
  static constexpr std::size_t kSlotsAhead = 4;

  std::atomic<std::uint64_t> written;  // Records so far. Record n is in slot n mod kSlots.
  alignas(64) std::array<Slot, kSlots + kSlotsAhead> slots;
};

using EventRing = Ring<kEventWords, kEventsMax>;
using NameRing = Ring<kNameWords, kNamesMax>;

struct Memory {
  std::uint64_t number;  // Must change with the layout.
  alignas(128) NameRing names;
  alignas(128) EventRing events;
};
inline constexpr std::uint64_t kLayoutNumber = (std::uint64_t{0x7472'0004} << 32) | sizeof(Memory);
inline constexpr std::size_t kMemoryBytes = (sizeof(Memory) + 4095) / 4096 * 4096;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<Word>::is_always_lock_free);

// Prefetches a line for a store, because another core may have it.
[[gnu::always_inline]] inline void PrefetchToStore(const void* line) {
#if defined(__x86_64__)
  // Without an option for a newer processor, the compiler's builtin prefetches for a read. Older
  // processors treat this instruction as a no-op.
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

// Writing end of a ring. Confined to one thread.
template <typename R>
class RingWriter {
 public:
  // `ring` must be zeroed and must outlive this object.
  explicit RingWriter(R& ring) : ring_(ring) {}

  void Write(const typename R::Words& words) {
    // Unrolled, so that words need not pass through memory.
    Fill([&](auto put) {
      [&]<std::size_t... kWord>(std::index_sequence<kWord...>) { (put(kWord, words[kWord]), ...); }
      (std::make_index_sequence<R::kWordsPerSlot>());
    });
  }
  // Writes a record; `fill(put)` calls `put(word, value)` for each word.
  template <typename Filler>
  [[gnu::always_inline]] void Fill(Filler fill) {
    typename R::Slot& slot = ring_.slots[written_ % R::kSlotsMax];
    // On the previous lap a reader may have moved the line of a later slot to its core. A line that
    // is prefetched now arrives before it is written, so the stores do not stall.
    PrefetchToStore(&slot + R::kSlotsAhead);
    // (1) Release, pairs with (3): a reader that sees this word also sees that the earlier records
    // were written.
    fill([&slot](std::size_t word, Word value) {
      slot[word].store(value, std::memory_order_release);
    });
    // (2) Release, pairs with (4): a reader that sees the number also sees the words.
    ring_.written.store(++written_, std::memory_order_release);
  }

  std::uint64_t written() const { return written_; }

 private:
  R& ring_;
  std::uint64_t written_ = 0;  // The writer's own count; `written` is a copy for readers.
};

// Reading end of a ring. There may be several, because a reader changes nothing in the ring.
template <typename R>
class RingReader {
 public:
  // Starts at record `next`. `ring` must outlive this object.
  RingReader(const R& ring, std::uint64_t next) : ring_(&ring), next_(next) {}

  static std::uint64_t Written(const R& ring) {
    // (4) Acquire, pairs with (2).
    return ring.written.load(std::memory_order_acquire);
  }

  // Copies records up to `end` into `copies`, up to its size, and returns their number.
  // Records that were overwritten before they were copied are lost.
  template <std::size_t kMemoryRequest>
  std::size_t Read(std::uint64_t end, std::array<typename R::Words, kMemoryRequest>& copies) {
    SkipLost(Written(*ring_));
    if (next_ >= end) return 0;
    const std::size_t count =
        end - next_ < kMemoryRequest ? static_cast<std::size_t>(end - next_) : kMemoryRequest;
    for (std::size_t i = 0; i < count; ++i) {
      const typename R::Slot& slot = ring_->slots[(next_ + i) % R::kSlotsMax];
      for (std::size_t word = 0; word < copies[i].size(); ++word) {
        // (3) Acquire, pairs with (1): a word of a later record implies that the load of `written`
        // below returns a number so high that the copy is discarded.
        copies[i][word] = slot[word].load(std::memory_order_acquire);
      }
    }
    const std::uint64_t begin = next_;
    SkipLost(Written(*ring_));
    const std::size_t overtaken =
        next_ - begin < count ? static_cast<std::size_t>(next_ - begin) : count;
    for (std::size_t i = overtaken; i < count; ++i) copies[i - overtaken] = copies[i];
    next_ += count - overtaken;
    return count - overtaken;
  }

  std::uint64_t lost() const { return lost_; }
  std::uint64_t next() const { return next_; }

 private:
  // Record `written` may already be partially written, and it occupies the slot of record `written`
  // - kSlotsMax.
  void SkipLost(std::uint64_t written) {
    if (written - next_ < R::kSlotsMax || written < next_) return;
    const std::uint64_t first = written - R::kSlotsMax + 1;
    lost_ += first - next_;
    next_ = first;
  }

  const R* ring_;
  std::uint64_t next_;
  std::uint64_t lost_ = 0;
};

}  // namespace gpushared::trace

#endif  // GPUSHARED_SERVER_TELEMETRY_TRACE_LAYOUT_H_
