// SPDX-License-Identifier: Apache-2.0
// Runs of kernels that the contain pass has transformed: server/ptx/passes/contain.h.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_CONTAINED_RUNS_H_
#define GPUSHARED_SERVER_DEVICE_CPU_CONTAINED_RUNS_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "server/device/cpu/address_range.h"
#include "server/ptx/passes/contain.h"

namespace gpushared::device {

// The words that one contained module shares with the device, its ContainControl and FaultRecord,
// and which executor threads run kernels of it.
//
// There is one record, and one word that ends kernels: a fault, or a Stop, is that of every launch
// of the module that was running, and all of them end before another begins. They are one client's.
//
// Thread-safe.
class ContainedRuns {
 public:
  static constexpr std::uint64_t kBytes = 128;

  // `base`: kBytes bytes, aligned to 64, which like `range`, the client's, outlive the object.
  ContainedRuns(std::uint64_t base, const AddressRange& range, std::vector<ptx::FaultPlace> places);
  ContainedRuns(const ContainedRuns&) = delete;
  ContainedRuns& operator=(const ContainedRuns&) = delete;

  std::uint64_t control_address() const { return base_; }
  std::uint64_t fault_address() const { return base_ + 64; }

  // Around each run of an executor. Enter waits while others have to end. Leave returns what a
  // kernel has ended with in between, or "".
  void Enter();
  ptx::ToldFault Leave();
  // Ends all that runs. A run that is to end and may not have entered yet must be told so before
  // this call, and look behind Enter: when nobody runs, a Stop is forgotten.
  void Stop();

 private:
  void Forget();
  void EndAll();

  const std::uint64_t base_;
  const AddressRange& range_;
  const std::vector<ptx::FaultPlace> places_;
  std::mutex mutex_;  // Protects what follows, and for whom the words are meant.
  std::condition_variable all_left_;
  std::uint32_t running_ = 0;
  bool must_end_ = false;  // All that runs.
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_CONTAINED_RUNS_H_
