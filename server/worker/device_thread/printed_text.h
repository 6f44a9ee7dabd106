// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_DEVICE_THREAD_PRINTED_TEXT_H_
#define GPUSHARED_SERVER_WORKER_DEVICE_THREAD_PRINTED_TEXT_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "gpushared/mutex.h"

namespace gpushared::server {

// What one client's kernels printed and the client has not taken. What does not fit is dropped and
// counted, as CUDA does.
//
// Thread-safe: executor threads add, the control thread takes, the device thread asks total().
class PrintedText {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{1} << 20;

  void Add(std::string_view text) {
    const MutexLock lock(mutex_);
    const std::string_view kept = text.substr(0, kBytesMax - text_.size());
    text_ += kept;
    dropped_ += text.size() - kept.size();
    // Release, pairs with total(): who publishes the number has added the text.
    total_.fetch_add(text.size(), std::memory_order_release);
  }

  struct Part {
    std::string text;
    std::uint64_t dropped = 0;  // Over all, so far.
    std::uint64_t end = 0;      // Bytes ever added, less those that are still here.
  };
  // The oldest `bytes_max` bytes, or fewer.
  Part Take(std::size_t bytes_max) {
    const MutexLock lock(mutex_);
    Part part{.text = text_.substr(0, bytes_max), .dropped = dropped_, .end = 0};
    text_.erase(0, part.text.size());
    part.end = total_.load(std::memory_order_relaxed) - text_.size();
    return part;
  }

  // Bytes ever added.
  std::uint64_t total() const { return total_.load(std::memory_order_acquire); }

 private:
  Mutex mutex_;
  std::string text_ GPUSHARED_GUARDED_BY(mutex_);
  std::uint64_t dropped_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  std::atomic<std::uint64_t> total_ = 0;  // Written under mutex_.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_DEVICE_THREAD_PRINTED_TEXT_H_
