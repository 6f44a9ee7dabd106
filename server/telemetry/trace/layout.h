// SPDX-License-Identifier: Apache-2.0
// The memory of a trace: two rings that one thread of a worker writes, and any process may read.

#ifndef GPUSHARED_SERVER_TELEMETRY_TRACE_LAYOUT_H_
#define GPUSHARED_SERVER_TELEMETRY_TRACE_LAYOUT_H_

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace gpushared::trace {

inline constexpr std::size_t kEventWords = 16;  // One cache line: the writer fills whole ones.
inline constexpr std::size_t kNameWords = 32;
// Room for the events of 40 ms at 3 million a second, and of a second under usual loads.
inline constexpr std::size_t kEventsMax = std::size_t{1} << 17;
inline constexpr std::size_t kNamesMax = std::size_t{1} << 12;
inline constexpr std::size_t kNameBytesMax = 96;

// 32 bits, so that the lower half of a time is a word: nothing has to be shifted into its place.
using Word = std::uint32_t;
using EventWords = std::array<Word, kEventWords>;
using NameWords = std::array<Word, kNameWords>;

// The last kSlots records of kWords words. The writer never waits: it overwrites the oldest one.
// Words are atomic, because a reader may copy a record while it is overwritten. Then `written`
// tells it that the copy is worth nothing.
template <std::size_t kWords, std::size_t kSlots>
struct Ring {
  static constexpr std::size_t kWordsPerSlot = kWords;
  static constexpr std::size_t kSlotsMax = kSlots;
  static_assert(std::has_single_bit(kSlots));
  using Words = std::array<Word, kWords>;
  using Slot = std::array<std::atomic<Word>, kWords>;

  // The writer asks for the slot this far ahead: about a microsecond of commands. The array is
  // longer by as many, so that it need not look where the ring begins again.
  static constexpr std::size_t kSlotsAhead = 4;

  std::atomic<std::uint64_t> written;  // Records so far. Record n is in slot n mod kSlots.
  alignas(64) std::array<Slot, kSlots + kSlotsAhead> slots;
};

using EventRing = Ring<kEventWords, kEventsMax>;
using NameRing = Ring<kNameWords, kNamesMax>;

struct Memory {
  std::uint64_t number;  // Another one for another layout.
  alignas(128) NameRing names;
  alignas(128) EventRing events;
};
inline constexpr std::uint64_t kLayoutNumber = (std::uint64_t{0x7472'0004} << 32) | sizeof(Memory);
inline constexpr std::size_t kMemoryBytes = (sizeof(Memory) + 4095) / 4096 * 4096;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<Word>::is_always_lock_free);

// Asks for a line to be stored to. Another core may have it.
[[gnu::always_inline]] inline void PrefetchToStore(const void* line) {
#if defined(__x86_64__)
  // The built-in function asks for a copy to read, unless told of a newer processor. Older ones
  // take this for no operation.
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

// The writing end of a ring. One thread's.
template <typename R>
class RingWriter {
 public:
  // `ring` outlives this, and is all zero.
  explicit RingWriter(R& ring) : ring_(ring) {}

  void Write(const typename R::Words& words) {
    // No loop, so that words need not pass through memory on their way.
    Fill([&](auto put) {
      [&]<std::size_t... kWord>(std::index_sequence<kWord...>) { (put(kWord, words[kWord]), ...); }
      (std::make_index_sequence<R::kWordsPerSlot>());
    });
  }
  // The same; `fill(put)` calls `put(word, value)` for each word.
  template <typename Filler>
  [[gnu::always_inline]] void Fill(Filler fill) {
    typename R::Slot& slot = ring_.slots[written_ % R::kSlotsMax];
    // A lap ago a reader took that line to its core. Asked for now, it is here when its turn comes,
    // and the stores to it keep nothing waiting.
    PrefetchToStore(&slot + R::kSlotsAhead);
    // (1) Release, pairs with (3): who sees this word sees that the records before were written.
    fill([&slot](std::size_t word, Word value) {
      slot[word].store(value, std::memory_order_release);
    });
    // (2) Release, pairs with (4): who sees the number sees the words.
    ring_.written.store(++written_, std::memory_order_release);
  }

  std::uint64_t written() const { return written_; }

 private:
  R& ring_;
  std::uint64_t written_ = 0;  // The truth; the one in shared memory only says it.
};

// A reading end of a ring; there may be many. It changes nothing there.
template <typename R>
class RingReader {
 public:
  // Begins with record `next`. `ring` outlives this.
  RingReader(const R& ring, std::uint64_t next) : ring_(&ring), next_(next) {}

  static std::uint64_t Written(const R& ring) {
    // (4) Acquire, pairs with (2).
    return ring.written.load(std::memory_order_acquire);
  }

  // Copies records up to `end`, as far as `copies` has room, and returns how many. Records that
  // were overwritten before they were copied are lost.
  template <std::size_t kMemoryRequest>
  std::size_t Read(std::uint64_t end, std::array<typename R::Words, kMemoryRequest>& copies) {
    SkipLost(Written(*ring_));
    if (next_ >= end) return 0;
    const std::size_t count =
        end - next_ < kMemoryRequest ? static_cast<std::size_t>(end - next_) : kMemoryRequest;
    for (std::size_t i = 0; i < count; ++i) {
      const typename R::Slot& slot = ring_->slots[(next_ + i) % R::kSlotsMax];
      for (std::size_t word = 0; word < copies[i].size(); ++word) {
        // (3) Acquire, pairs with (1): a word of a later record comes with a number below that is
        // so high that the copy is thrown away.
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
  // The slot of record `written` may be half written already, and that is where record
  // `written` - kSlotsMax was.
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
