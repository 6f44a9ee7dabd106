// SPDX-License-Identifier: Apache-2.0
// One direction of the data plane: a single-producer, single-consumer ring of 64-byte granules
// in memory shared by one client process and the worker.
//
// There is no shared tail. The granule at absolute position p is announced by its own tag,
// (p + 1) << 1 | is_continuation. So one cache line moves per record instead of two, and the
// producer shares no index that could lie. A record is a header granule and `continuations`
// further ones. The header's tag is stored last. The consumer publishes the position up to which
// it has taken granules; that is the producer's credit.
//
// Trust: the two ends do not trust each other. Each keeps its own position in private memory
// and only publishes it. A peer that scribbles over tags, lengths or credit stalls or ends its
// own session, and nothing else.
//
// A tag repeats after 2^31 granules, but a slot is rewritten every few thousand, so an honest
// producer never leaves one lying that long.

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

// Copies granule data. tsan watches calls of memcpy, but not the instructions that gcc makes of a
// memcpy of known size. Without this function it would miss a weakened order of the tags.
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

// The producing end.
//
// Thread-compatible: several threads of a client share one under their own lock.
class TagRingWriter {
 public:
  // `granules.size()` is a power of two. `taken` is the consumer's published position. Both
  // outlive the writer; the memory is all zero when writer and reader are made.
  TagRingWriter(std::span<Granule> granules, const std::atomic<std::uint64_t>& taken)
      : granules_(granules), taken_(taken) {
    Check(std::has_single_bit(granules.size()), "ring size is a power of two");
  }

  // Writes one record: a struct of command.h or completion.h, whose tag and continuations are
  // set here, then `tail`. kFull changes nothing; the caller waits for credit and tries again.
  // kPeerBroken: the consumer's position is impossible; end the session.
  template <typename Record>
  WriteResult TryWrite(const Record& record, std::span<const std::byte> tail = {}) {
    static_assert(sizeof(Record) == kGranuleBytes && std::is_trivially_copyable_v<Record>);
    const std::uint64_t continuations =
        (tail.size() + kContinuationDataBytes - 1) / kContinuationDataBytes;
    Check(continuations <= kContinuationsMax, "record fits the largest number of granules");
    const WriteResult room = Reserve(continuations + 1);
    if (room != WriteResult::kWritten) [[unlikely]]
      return room;

    // Continuations first: the header's release store below publishes them too, so their own
    // tags are stored relaxed.
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
    // (1) Release: the record becomes visible before the tag that announces it. Pairs with
    // the acquire in TagRingReader.
    header.tag.store(RingTag(position_, false), std::memory_order_release);
    position_ = at;
    return WriteResult::kWritten;
  }

  // Whether TryWrite of a record with this many tail bytes would succeed now. Reads the
  // consumer's position afresh when the last known one does not suffice.
  bool HasRoom(std::size_t tail_bytes) {
    return Reserve((tail_bytes + kContinuationDataBytes - 1) / kContinuationDataBytes + 1) ==
           WriteResult::kWritten;
  }

  std::uint64_t position() const { return position_; }

 private:
  Granule& At(std::uint64_t position) { return granules_[position & (granules_.size() - 1)]; }

  WriteResult Reserve(std::uint64_t granules) {
    if (position_ + granules - known_taken_ <= granules_.size()) [[likely]] {
      return WriteResult::kWritten;
    }
    // (2) Acquire, pairs with (3): once we see that the consumer has left a granule, its copy
    // out of that granule has finished and we may overwrite it.
    const std::uint64_t taken = taken_.load(std::memory_order_acquire);
    // The peer writes it, so it is input. It must lie between its last value and our position. One
    // unsigned comparison rejects a position that ran ahead and, by wrap-around, one that moved
    // backwards.
    if (taken - known_taken_ > position_ - known_taken_) return WriteResult::kPeerBroken;
    known_taken_ = taken;
    return position_ + granules - taken <= granules_.size() ? WriteResult::kWritten
                                                            : WriteResult::kFull;
  }

  std::span<Granule> granules_;
  const std::atomic<std::uint64_t>& taken_;
  std::uint64_t position_ = 0;     // The truth; nothing in shared memory says it.
  std::uint64_t known_taken_ = 0;  // Last credit that was checked.
};

// The consuming end.
//
// Thread-compatible; belongs to the one thread that takes the records.
class TagRingReader {
 public:
  // `taken` is where this end publishes its position. Both outlive the reader.
  TagRingReader(std::span<const Granule> granules, std::atomic<std::uint64_t>& taken)
      : granules_(granules), taken_(taken) {
    Check(std::has_single_bit(granules.size()), "ring size is a power of two");
  }

  // Whether a record waits. Cheap: one load of a line that stays in this core's cache until
  // the producer writes to it.
  bool HasRecord() const {
    return At(position_).tag.load(std::memory_order_acquire) == RingTag(position_, false);
  }

  // Copies the next record to private memory and gives its granules back. Credit is published in
  // steps of an eighth of the ring, and when the ring is found empty. The caller then wakes a
  // producer that may wait for it. kPeerBroken: no honest producer wrote this; end the session.
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
    // The producer can go on writing to the granule. The barrier keeps the compiler from
    // reading shared memory again where the code below names the copy.
    CopyIsFinal();
    std::uint16_t continuations;
    std::memcpy(&continuations, out.head.data() + offsetof(RecordHeader, continuations),
                sizeof continuations);
    // The only length in a record, so the only thing that has to be bounded here: by what the
    // private copy holds.
    if (continuations > kContinuationsMax) return ReadResult::kPeerBroken;
    for (std::size_t i = 0; i < continuations; ++i) {
      const std::uint64_t position = position_ + 1 + i;
      const Granule& granule = At(position);
      // Relaxed: the acquire of the header's tag made them visible.
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

  // Publishes credit now; needed only by a caller that stops reading for another reason than
  // an empty ring. Returns whether there was anything to publish.
  bool PublishTaken() {
    if (published_ == position_) return false;
    published_ = position_;
    // (3) Release, pairs with (2): our copies are done before the granules are free.
    taken_.store(position_, std::memory_order_release);
    return true;
  }

  std::uint64_t position() const { return position_; }
  std::uint64_t published() const { return published_; }

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
