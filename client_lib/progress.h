// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_PROGRESS_H_
#define GPUSHARED_CLIENT_LIB_PROGRESS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "ipc/wire/layout.h"

namespace gpushared::client {

// A command: the number of its stream and its sequence in that stream. Sequence 0 precedes the
// first command.
struct StreamPoint {
  std::uint32_t stream = 0;
  std::uint64_t sequence = 0;
};

// Commands that must all have ended, at most one per stream. If empty, there is nothing to wait
// for.
using Fence = std::vector<StreamPoint>;

// Progress of each stream number: the last submitted sequence (written by the client) and the last
// ended sequence (written by the worker).
//
// Thread-safe. RecordSubmitted and RecordNotice are called under the submission lock.
class Progress {
 public:
  // `timelines` must outlive this object.
  explicit Progress(std::span<const std::atomic<std::uint64_t>, ipc::kStreamsMax> timelines)
      : timelines_(timelines) {}

  std::uint64_t submitted(std::uint32_t stream) const {
    return submitted_[stream].load(std::memory_order_acquire);
  }
  void RecordSubmitted(std::uint32_t stream, std::uint64_t sequence) {
    // Release: pairs with submitted(), so that a thread that reads the number sees the effects of
    // the submission. last_working_ is stored before submitted_, because a reader that sees the
    // command as submitted must also see that it is work.
    last_working_[stream].store(sequence, std::memory_order_release);
    submitted_[stream].store(sequence, std::memory_order_release);
  }
  // Records a command that only passes information to the worker. Such a command ends as soon as
  // the commands before it have ended.
  void RecordNotice(std::uint32_t stream, std::uint64_t sequence) {
    // Release: pairs with submitted().
    submitted_[stream].store(sequence, std::memory_order_release);
  }

  // Acquire: pairs with the worker's release of the timeline word, so that the results of the
  // command, and a completion record about it, are visible.
  std::uint64_t ended(std::uint32_t stream) const {
    return timelines_[stream].load(std::memory_order_acquire);
  }
  bool HasEnded(StreamPoint point) const { return ended(point.stream) >= point.sequence; }
  bool HasEnded(const Fence& fence) const {
    for (const StreamPoint point : fence) {
      if (!HasEnded(point)) return false;
    }
    return true;
  }

  // Returns whether the remaining commands of these streams only pass information to the worker.
  bool HasOnlyNotices(const Fence& fence) const {
    for (const StreamPoint point : fence) {
      // Acquire: pairs with RecordSubmitted.
      const std::uint64_t last = last_working_[point.stream].load(std::memory_order_acquire);
      if (last != 0 && !HasEnded({point.stream, last})) return false;
    }
    return true;
  }

  // Returns the last command of each stream, except where that command has ended.
  Fence Unfinished() const {
    Fence fence;
    for (std::uint32_t stream = 0; stream < ipc::kStreamsMax; ++stream) {
      const StreamPoint last{stream, submitted(stream)};
      if (last.sequence != 0 && !HasEnded(last)) fence.push_back(last);
    }
    return fence;
  }

 private:
  std::span<const std::atomic<std::uint64_t>, ipc::kStreamsMax> timelines_;
  std::array<std::atomic<std::uint64_t>, ipc::kStreamsMax> submitted_ = {};
  std::array<std::atomic<std::uint64_t>, ipc::kStreamsMax> last_working_ = {};
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_PROGRESS_H_
