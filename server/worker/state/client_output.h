// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_CLIENT_OUTLET_H_
#define GPUSHARED_SERVER_WORKER_STATE_CLIENT_OUTLET_H_

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

// What one client sees of its commands: completion records, and a timeline per stream.
//
// A command is taken only while its answers have room: room is reserved then, and used or given
// back later.
//
// Confined to the device thread.
class ClientOutput {
 public:
  // Both outlive it.
  // `printed`: null where the client takes none.
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

  // More than is reserved.
  bool HasRoom() { return writer_.HasRoom(reserved_ * ipc::kContinuationDataBytes); }
  void Reserve() { ++reserved_; }
  void GiveBack() { --reserved_; }
  // Into room that was reserved. False: the client lied about how much it has read.
  bool Write(const ipc::CompletionRecord& record) {
    --reserved_;
    return writer_.TryWrite(record) == ipc::WriteResult::kWritten;
  }
  // The stream's timeline is `finished` from the next Publish on.
  void Finish(std::uint32_t stream, std::uint64_t finished) {
    finished_[stream] = finished;
    if (to_publish_.test(stream)) return;
    to_publish_.set(stream);
    streams_[stream_count_++] = static_cast<std::uint8_t>(stream);
  }
  // Where memory moves. True when the client has something new to do.
  bool ShowMemory(std::uint64_t guaranteed, std::uint64_t resident, std::uint64_t wanted) {
    // Relaxed, all three: nothing depends on them. A guarantee of 0 would say that all is.
    guaranteed_word_.store(std::max<std::uint64_t>(guaranteed, 1), std::memory_order_relaxed);
    resident_word_.store(resident, std::memory_order_relaxed);
    wanted_word_.store(wanted, std::memory_order_relaxed);
    return std::exchange(wanted_, wanted) == 0 && wanted != 0;
  }
  ipc::CompletionDoorbell::Rung Publish() {
    // Relaxed: the timelines' release stores follow.
    if (printed_ != nullptr) printed_word_.store(printed_->total(), std::memory_order_relaxed);
    for (std::size_t i = 0; i < stream_count_; ++i) {
      const std::uint8_t stream = streams_[i];
      to_publish_.reset(stream);
      // Release: whoever sees the number sees the results and the completion records of the
      // commands up to it. Pairs with the acquire of a waiting client.
      timeline_[stream].store(finished_[stream], std::memory_order_release);
    }
    stream_count_ = 0;
    return doorbell_.Ring();
  }
  // On which the client's threads sleep.
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
  std::size_t reserved_ = 1;  // Stream 0 may fail once.
  std::array<std::uint64_t, ipc::kStreamsMax> finished_ = {};
  std::bitset<ipc::kStreamsMax> to_publish_;
  std::array<std::uint8_t, ipc::kStreamsMax> streams_;  // Those of to_publish_.
  std::size_t stream_count_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_CLIENT_OUTLET_H_
