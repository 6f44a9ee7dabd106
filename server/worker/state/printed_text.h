// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_PRINTED_TEXT_H_
#define GPUSHARED_SERVER_WORKER_STATE_PRINTED_TEXT_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "gpushared/mutex.h"

namespace gpushared::server {

// Text printed by one client's kernels and not yet taken by the client. Text that does not fit is
// dropped and counted, as in CUDA.
//
// Thread-safe: executor threads add, the control thread takes, and the device thread reads total().
class PrintedText {
 public:
  // Default limit; a client can request another.
  static constexpr std::size_t kBytesMax = std::size_t{1} << 20;

  void SetBytesMax(std::size_t bytes) {
    const MutexLock lock(mutex_);
    bytes_max_ = bytes;
  }
  std::size_t bytes_max() const {
    const MutexLock lock(mutex_);
    return bytes_max_;
  }

  void Add(std::string_view text) {
    const MutexLock lock(mutex_);
    const std::string_view kept = text.substr(0, bytes_max_ - held());
    text_ += kept;
    dropped_ += text.size() - kept.size();
    // Release, pairs with total(): a thread that publishes the number also sees the text.
    total_.fetch_add(text.size(), std::memory_order_release);
  }

  struct Part {
    std::string text;
    std::uint64_t dropped = 0;  // Bytes dropped since the session began.
    std::uint64_t end = 0;      // Bytes ever added, minus those still buffered.
  };
  // Removes and returns the oldest bytes, at most `bytes_max`.
  Part Take(std::size_t bytes_max) {
    const MutexLock lock(mutex_);
    Part part{.text = text_.substr(taken_, bytes_max), .dropped = dropped_, .end = 0};
    taken_ += part.text.size();
    // The text is not erased on every call, because erasing moves the remaining text.
    if (taken_ >= held()) text_.erase(0, std::exchange(taken_, 0));
    part.end = total_.load(std::memory_order_relaxed) - held();
    return part;
  }

  // Text that was not taken, and the counts that belong to it.
  struct State {
    std::string text;
    std::uint64_t total = 0, dropped = 0;
    std::size_t bytes_max = kBytesMax;
  };
  State Save() const {
    const MutexLock lock(mutex_);
    return {.text = text_.substr(taken_),
            .total = total_.load(std::memory_order_relaxed),
            .dropped = dropped_,
            .bytes_max = bytes_max_};
  }
  // Must be called before any text is added.
  void Restore(State state) {
    const MutexLock lock(mutex_);
    text_ = std::move(state.text);
    dropped_ = state.dropped;
    bytes_max_ = state.bytes_max;
    total_.store(state.total, std::memory_order_relaxed);
  }

  // Bytes ever added.
  std::uint64_t total() const { return total_.load(std::memory_order_acquire); }

 private:
  std::size_t held() const GPUSHARED_REQUIRES(mutex_) { return text_.size() - taken_; }

  mutable Mutex mutex_;
  std::string text_ GPUSHARED_GUARDED_BY(mutex_);
  std::size_t taken_ GPUSHARED_GUARDED_BY(mutex_) = 0;  // Bytes taken from the front of text_.
  std::size_t bytes_max_ GPUSHARED_GUARDED_BY(mutex_) = kBytesMax;
  std::uint64_t dropped_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  std::atomic<std::uint64_t> total_ = 0;  // Written under mutex_.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_PRINTED_TEXT_H_
