// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_CLIENT_OUTPUT_H_
#define GPUSHARED_SERVER_WORKER_STATE_CLIENT_OUTPUT_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "ipc/doorbell.h"
#include "ipc/tag_ring.h"
#include "ipc/wire/completion.h"
#include "ipc/wire/layout.h"
#include "server/worker/state/printed_text.h"

namespace gpushared::server {

// What the worker publishes to a client: completion records, a timeline per stream, the amount of
// printed text, and memory figures.
//
// A command is taken only if its completion records fit: space is reserved when it is taken, and
// used or released later.
//
// Confined to the device thread.
class ClientOutput {
 public:
  // Both segments must outlive this. `printed` is null if the client does not read printed text.
  ClientOutput(ipc::CompletionSegment& completions, const ipc::CommandSegment& commands,
               std::shared_ptr<const PrintedText> printed)
      : timeline_(completions.timeline),
        printed_word_(completions.printed),
        guaranteed_word_(completions.guaranteed),
        resident_word_(completions.resident),
        wanted_word_(completions.wanted),
        printed_(std::move(printed)),
        writer_(completions.granules, commands.completions_taken),
        doorbell_(completions.event, commands.waiting) {}

  // Position of the completion ring, the last credit, and the number of reserved records.
  std::uint64_t position() const { return writer_.position(); }
  std::uint64_t known_taken() const { return writer_.known_taken(); }
  std::size_t reserved() const { return reserved_; }
  // Continues the output of another worker.
  bool Resume(std::uint64_t position, std::uint64_t known_taken, std::size_t reserved) {
    reserved_ = reserved;
    return writer_.Resume(position, known_taken);
  }
  // True if there is space beyond what is reserved.
  bool HasRoom() { return writer_.HasRoom(reserved_ * ipc::kContinuationDataBytes); }
  void Reserve() { ++reserved_; }
  void GiveBack() { --reserved_; }
  // Writes into reserved space. Returns false if the client reported reading more than was written.
  bool Write(const ipc::CompletionRecord& record) {
    --reserved_;
    return writer_.TryWrite(record) == ipc::WriteResult::kWritten;
  }
  // Advances the stream's timeline to `finished` at the next Publish.
  void Finish(std::uint32_t stream, std::uint64_t finished) {
    finished_[stream] = finished;
    if (to_publish_.test(stream)) return;
    to_publish_.set(stream);
    streams_[stream_count_++] = static_cast<std::uint8_t>(stream);
  }
  // Publishes the client's memory figures; called only if memory is oversubscribed. Returns true
  // when other clients begin to need some of its memory.
  bool ShowMemory(std::uint64_t guaranteed, std::uint64_t resident, std::uint64_t wanted) {
    // All three are relaxed, because no other data depends on them. The guarantee is published as
    // at least 1, because 0 would mean that all memory is guaranteed.
    guaranteed_word_.store(std::max<std::uint64_t>(guaranteed, 1), std::memory_order_relaxed);
    resident_word_.store(resident, std::memory_order_relaxed);
    wanted_word_.store(wanted, std::memory_order_relaxed);
    return std::exchange(wanted_, wanted) == 0 && wanted != 0;
  }
  ipc::CompletionDoorbell::Rung Publish() {
    // Relaxed, because the timelines' release stores follow.
    if (printed_ != nullptr) printed_word_.store(printed_->total(), std::memory_order_relaxed);
    for (std::size_t i = 0; i < stream_count_; ++i) {
      const std::uint8_t stream = streams_[i];
      to_publish_.reset(stream);
      // Release: a thread that sees the number also sees the results and completion records of all
      // commands up to it. Pairs with the acquire of a waiting client.
      timeline_[stream].store(finished_[stream], std::memory_order_release);
    }
    stream_count_ = 0;
    return doorbell_.Ring();
  }
  // Wakes threads that wait for the gate. A call may wake only some; these wake the others.
  void WakeThreads() { doorbell_.Ring(); }
  // Futex on which the client's threads sleep.
  const std::atomic<std::uint32_t>* futex() const { return doorbell_.futex(); }

 private:
  std::atomic<std::uint64_t>* const timeline_;
  std::atomic<std::uint64_t>& printed_word_;
  std::atomic<std::uint64_t>& guaranteed_word_;
  std::atomic<std::uint64_t>& resident_word_;
  std::atomic<std::uint64_t>& wanted_word_;
  std::uint64_t wanted_ = 0;
  const std::shared_ptr<const PrintedText> printed_;
  ipc::TagRingWriter writer_;
  ipc::CompletionDoorbell doorbell_;
  std::size_t reserved_ = 1;  // One for the failure of stream 0, which can fail once.
  std::array<std::uint64_t, ipc::kStreamsMax> finished_ = {};
  std::bitset<ipc::kStreamsMax> to_publish_;
  std::array<std::uint8_t, ipc::kStreamsMax> streams_;  // The streams of to_publish_.
  std::size_t stream_count_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_CLIENT_OUTPUT_H_
