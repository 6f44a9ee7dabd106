// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_LOOP_DEVICE_SIGNAL_H_
#define GPUSHARED_SERVER_WORKER_LOOP_DEVICE_SIGNAL_H_

#include <atomic>
#include <memory>
#include <utility>

#include "gpushared/result.h"

#include "ipc/unique_fd.h"
#include "ipc/wire/layout.h"

namespace gpushared::server {

// Wakes the device thread for threads of this process. Consists of the page on which that thread
// announces that it sleeps, and an eventfd. Created before the device, which gets
// RecordCompletions as its wake function. Must outlive the device.
//
// Thread-safe.
class DeviceSignal {
 public:
  static Result<std::unique_ptr<DeviceSignal>> Create();

  // Called by the device when completions can be taken.
  void RecordCompletions() {
    completions_.store(true, std::memory_order_release);
    Wake();
  }
  // Called by mailboxes when a message was posted. Makes a system call only while the device thread
  // sleeps; the argument of ipc/doorbell.h applies, with this process as the waker.
  void Wake();

  // Returns whether completions were reported since the last call. Device thread only.
  bool TakeCompletionsNote() {
    // Relaxed check first, because the exchange costs a locked instruction in every iteration.
    if (!completions_.load(std::memory_order_relaxed)) return false;
    return completions_.exchange(false, std::memory_order_acq_rel);
  }
  bool has_completions() const { return completions_.load(std::memory_order_acquire); }

  ipc::WorkerPage& page() { return page_; }
  int eventfd() const { return eventfd_.get(); }

 private:
  explicit DeviceSignal(ipc::UniqueFd eventfd) : eventfd_(std::move(eventfd)) {}

  ipc::WorkerPage page_{};
  ipc::UniqueFd eventfd_;
  std::atomic<bool> completions_{false};
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_LOOP_DEVICE_SIGNAL_H_
