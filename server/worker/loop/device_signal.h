// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_LOOP_DEVICE_SIGNAL_H_
#define GPUSHARED_SERVER_WORKER_LOOP_DEVICE_SIGNAL_H_

#include <atomic>
#include <memory>

#include "gpushared/result.h"

#include "ipc/shared_segment.h"
#include "ipc/unique_fd.h"
#include "ipc/wire/layout.h"

namespace gpushared::server {

// How anything wakes the device thread: the page on which it tells clients that it sleeps, and
// an eventfd for the threads of its own process. Made before the device, which gets
// RecordCompletions as its wake function, and outlives it.
//
// Thread-safe.
class DeviceSignal {
 public:
  static Result<std::unique_ptr<DeviceSignal>> Create();

  // For the device: completions wait to be taken.
  void RecordCompletions() {
    completions_.store(true, std::memory_order_release);
    Wake();
  }
  // For mailboxes: something was posted. A system call only while the device thread sleeps;
  // the argument of ipc/doorbell.h, with this process as the waker.
  void Wake();

  // Device thread only. Whether completions were noted since the last call.
  bool TakeCompletionsNote() {
    // Relaxed look first: the exchange costs a locked instruction in every pass.
    if (!completions_.load(std::memory_order_relaxed)) return false;
    return completions_.exchange(false, std::memory_order_acq_rel);
  }
  bool has_completions() const { return completions_.load(std::memory_order_acquire); }

  ipc::WorkerPage& page() const { return page_.As<ipc::WorkerPage>(); }
  int page_fd() const { return page_.fd(); }
  int eventfd() const { return eventfd_.get(); }

 private:
  DeviceSignal(ipc::SharedSegment page, ipc::UniqueFd eventfd);

  ipc::SharedSegment page_;
  ipc::UniqueFd eventfd_;
  std::atomic<bool> completions_{false};
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_LOOP_DEVICE_SIGNAL_H_
