// SPDX-License-Identifier: Apache-2.0
// One direction of the data plane: a single-producer, single-consumer ring of 64-byte granules in
// memory shared by one client process and the worker.
//
// The ring has no shared tail. The granule at absolute position p is announced by its own tag, (p +
// 1) << 1 | is_continuation, so a record of one granule moves one cache line, not two, and the
// producer shares no index that a peer would have to trust. A record is a header granule and
// `continuations` further ones; the tag of the header is stored last. The consumer publishes the
// position up to which it has taken granules. This position is the producer's credit.
//
// Trust: the two ends do not trust each other. Each keeps its own position in private memory and
// only publishes it. A peer that overwrites tags, lengths or credit can stall or end its own
// session, and has no other effect.
//
// Tags repeat after 2^31 granules. This is safe because a correct producer rewrites each slot every
// few thousand granules, so an old tag never survives until its number recurs.

#ifndef GPUSHARED_IPC_TAG_RING_H_
#define GPUSHARED_IPC_TAG_RING_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "gpushared/check.h"

#include "ipc/wire/command.h"
#include "ipc/wire/layout.h"

namespace gpushared::ipc {

constexpr std::uint32_t RingTag(std::uint64_t position, bool is_continuation) {
  return static_cast<std::uint32_t>(position + 1) << 1 |
         static_cast<std::uint32_t>(is_continuation);
}

// Copies granule data. Not inlined under tsan, because tsan intercepts calls of memcpy but not the
// instructions that gcc generates for a memcpy of known size, so it would miss a weakened memory
// order of the tags.
#if defined(__SANITIZE_THREAD__)
[[gnu::noipa]] inline void CopyGranuleBytes(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
#else
inline void CopyGranuleBytes(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
#endif

enum class WriteResult { kWritten, kFull, kPeerBroken };
enum class ReadResult { kRecord, kEmpty, kPeerBroken };

// Producing end.
//
// Thread-compatible: the threads of a client share one under their own lock.
class TagRingWriter {
 public:
  // `granules.size()` is a power of two. `taken` is the published position of the consumer. Both
  // must outlive the writer, and the memory must be all zero when writer and reader are created,
  // unless Resume follows.
  TagRingWriter(std::span<Granule> granules, const std::atomic<std::uint64_t>& taken)
      : granules_(granules), taken_(taken) {
    Check(std::has_single_bit(granules.size()), "ring size is a power of two");
  }

  // Writes one record: a struct of command.h or completion.h, whose tag and continuations are set
  // here, followed by `tail`. With kFull, nothing was written; the caller waits for credit and
  // retries. kPeerBroken means that the consumer published an impossible position, so the session
  // must end.
  template <typename Record>
  WriteResult TryWrite(const Record& record, std::span<const std::byte> tail = {}) {
    static_assert(sizeof(Record) == kGranuleBytes && std::is_trivially_copyable_v<Record>);
    const std::uint64_t continuations =
        (tail.size() + kContinuationDataBytes - 1) / kContinuationDataBytes;
    Check(continuations <= kContinuationsMax, "record fits the largest number of granules");
    const WriteResult room = Reserve(continuations + 1);
    if (room != WriteResult::kWritten) [[unlikely]]
      return room;

    // Continuations first, with relaxed tags, because the release store of the header below
    // publishes them as well.
    std::uint64_t at = position_ + 1;
    for (; !tail.empty(); ++at) {
      Granule& granule = At(at);
      const std::size_t bytes = std::min(tail.size(), kContinuationDataBytes);
      CopyGranuleBytes(granule.data, tail.data(), bytes);
      granule.tag.store(RingTag(at, true), std::memory_order_relaxed);
      tail = tail.subspan(bytes);
    }

    std::array<std::byte, kGranuleBytes> head;
    std::memcpy(head.data(), &record, sizeof record);
    const auto count = static_cast<std::uint16_t>(continuations);
    std::memcpy(head.data() + offsetof(RecordHeader, continuations), &count, sizeof count);
    Granule& header = At(position_);
    CopyGranuleBytes(header.data, head.data() + sizeof header.tag, kContinuationDataBytes);
    // (1) Release: the record becomes visible before the tag that announces it. Pairs with the
    // acquire in TagRingReader.
    header.tag.store(RingTag(position_, false), std::memory_order_release);
    position_ = at;
    return WriteResult::kWritten;
  }

  // Returns whether TryWrite of a record with this many tail bytes would succeed now. If there is
  // too little room according to the last known position of the consumer, reloads that position.
  bool HasRoom(std::size_t tail_bytes) {
    return Reserve((tail_bytes + kContinuationDataBytes - 1) / kContinuationDataBytes + 1) ==
           WriteResult::kWritten;
  }

  std::uint64_t position() const { return position_; }
  std::uint64_t known_taken() const { return known_taken_; }
  // Continues where another process has stopped writing. False if no writer can have stopped there.
  bool Resume(std::uint64_t position, std::uint64_t known_taken) {
    if (position - known_taken > granules_.size()) return false;
    position_ = position;
    known_taken_ = known_taken;
    return true;
  }

 private:
  Granule& At(std::uint64_t position) { return granules_[position & (granules_.size() - 1)]; }

  WriteResult Reserve(std::uint64_t granules) {
    if (position_ + granules - known_taken_ <= granules_.size()) [[likely]] {
      return WriteResult::kWritten;
    }
    // (2) Acquire, pairs with (3): once the consumer's position has passed a granule, the consumer
    // has finished copying it, and it may be overwritten.
    const std::uint64_t taken = taken_.load(std::memory_order_acquire);
    // The peer writes this position, so it is checked like any input: it must be between its last
    // value and our position. One unsigned comparison rejects a position that is too large and, by
    // wrap-around, one that moved backwards.
    if (taken - known_taken_ > position_ - known_taken_) return WriteResult::kPeerBroken;
    known_taken_ = taken;
    return position_ + granules - taken <= granules_.size() ? WriteResult::kWritten
                                                            : WriteResult::kFull;
  }

  std::span<Granule> granules_;
  const std::atomic<std::uint64_t>& taken_;
  // Next granule to write. Kept only in private memory, where the peer cannot change it.
  std::uint64_t position_ = 0;
  std::uint64_t known_taken_ = 0;  // Last validated credit.
};

// Consuming end.
//
// Thread-compatible; belongs to the one thread that takes the records.
class TagRingReader {
 public:
  // The reader publishes its position in `taken`. `granules` and `taken` must outlive the reader.
  TagRingReader(std::span<const Granule> granules, std::atomic<std::uint64_t>& taken)
      : granules_(granules), taken_(taken) {
    Check(std::has_single_bit(granules.size()), "ring size is a power of two");
  }

  // Returns whether a record is available. Cheap: one load of a cache line that stays in this
  // core's cache until the producer writes to it.
  bool HasRecord() const {
    return At(position_).tag.load(std::memory_order_acquire) == RingTag(position_, false);
  }

  // Copies the next record to private memory and frees its granules. Publishes credit after every
  // eighth of the ring and when the ring is empty; the caller then wakes a producer that may wait
  // for credit. kPeerBroken means that no correct producer wrote the record, so the session must
  // end.
  ReadResult TryRead(RecordCopy& out) {
    const Granule& header = At(position_);
    // Acquire, pairs with (1): the whole record is visible.
    const std::uint32_t tag = header.tag.load(std::memory_order_acquire);
    if (tag != RingTag(position_, false)) {
      PublishTaken();
      return ReadResult::kEmpty;
    }
    std::memcpy(out.head.data(), &tag, sizeof tag);
    CopyGranuleBytes(out.head.data() + sizeof tag, header.data, kContinuationDataBytes);
    // The producer can keep writing to the granule. The barrier prevents the compiler from
    // rereading shared memory where the code below uses the copy.
    CopyIsFinal();
    std::uint16_t continuations;
    std::memcpy(&continuations, out.head.data() + offsetof(RecordHeader, continuations),
                sizeof continuations);
    // The number of continuations is the only length that this function uses, so no other one is
    // checked here. It must not exceed the capacity of the private copy.
    if (continuations > kContinuationsMax) return ReadResult::kPeerBroken;
    for (std::size_t i = 0; i < continuations; ++i) {
      const std::uint64_t position = position_ + 1 + i;
      const Granule& granule = At(position);
      // Relaxed, because the acquire of the header's tag made the tags of the continuations
      // visible.
      if (granule.tag.load(std::memory_order_relaxed) != RingTag(position, true)) {
        return ReadResult::kPeerBroken;
      }
      CopyGranuleBytes(out.tail.data() + i * kContinuationDataBytes, granule.data,
                       kContinuationDataBytes);
    }
    CopyIsFinal();
    position_ += 1 + std::uint64_t{continuations};
    if (position_ - published_ >= granules_.size() / 8) PublishTaken();
    return ReadResult::kRecord;
  }

  // Publishes credit now. Needed only if the caller stops reading before the ring is empty. Returns
  // whether there was anything to publish.
  bool PublishTaken() {
    if (published_ == position_) return false;
    published_ = position_;
    // (3) Release, pairs with (2): the copies are complete before the granules are free.
    taken_.store(position_, std::memory_order_release);
    return true;
  }

  std::uint64_t position() const { return position_; }
  std::uint64_t published() const { return published_; }
  // Continues where another process has stopped reading. False if no reader can have stopped there.
  bool Resume(std::uint64_t position, std::uint64_t published) {
    if (position - published > granules_.size()) return false;
    position_ = position;
    published_ = published;
    return true;
  }

 private:
  const Granule& At(std::uint64_t position) const {
    return granules_[position & (granules_.size() - 1)];
  }
  static void CopyIsFinal() { asm volatile("" ::: "memory"); }

  std::span<const Granule> granules_;
  std::atomic<std::uint64_t>& taken_;
  std::uint64_t position_ = 0;
  std::uint64_t published_ = 0;
};

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_TAG_RING_H_
