// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_DISPATCH_KERNEL_LIMITER_H_
#define GPUSHARED_SERVER_WORKER_DISPATCH_KERNEL_LIMITER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/worker/output/kernel_watch.h"
#include "server/worker/state/client_registry.h"
#include "server/worker/state/client_state.h"

namespace gpushared::server {

struct KernelLimiterOptions {
  KernelLimits limits;
  LimitEndsDevice ends_device = {true, true, true};
  // Time within which a kernel must end after the request, on devices that cannot kill a kernel.
  scheduler::Duration leaves_within = std::chrono::seconds(2);
};

// Ends kernels that run longer than their class allows, and reports kernels that delay other
// clients.
//
// Confined to the device thread.
class KernelLimiter {
 public:
  // `device` and `registry` must outlive this.
  KernelLimiter(device::Device& device, const ClientRegistry& registry,
                const KernelLimiterOptions& options);

  void OnSubmitted(const ClientState& client, const CommandSlot& command, std::uint8_t priority,
                   scheduler::TimePoint now);
  // See Device::HostStealUntil.
  void SetHostSteal(scheduler::Duration total, scheduler::TimePoint now) {
    watch_.SetHostSteal(total, now);
  }
  // Must be called before the command's state changes.
  void OnLeft(const ClientState& client, CommandSlot& command, scheduler::TimePoint now);
  // Ends each kernel that has exceeded its limit. Returns the loss of the device, with the kernel
  // as culprit, if the device cannot end this kernel alone, or if the kernel has not ended in time.
  // If the device cannot end a kernel alone and its class has no configured limit, the kernel is
  // only reported.
  std::optional<device::DeviceLoss> Enforce(scheduler::TimePoint now);
  // Time at which Enforce must be called even if no event occurs.
  std::optional<scheduler::TimePoint> wake_at() const;

  // Returns the kernels whose end was requested since the last call.
  KernelsEnded TakeEnded() { return std::exchange(ended_, {}); }
  bool has_ended() const { return ended_.count > 0; }
  // Returns true if a further report that this kernel is non-preemptible would be ignored.
  bool HasRecordedNonpreemptible(const CommandSlot& command) const {
    return kernels_noted_.size() >= kKernelsNotedMax ||
           kernels_noted_.contains(~command.cost_kernel);
  }
  // Reports a kernel that has a preemptible form but runs without it, because of `why`.
  void RecordNonpreemptible(const ClientState& client, const CommandSlot& command,
                            const std::string& why) {
    Note(client, command, ~command.cost_kernel, why);
  }
  // Entries for the log: per kernel, at most one as non-preemptible, and one for a slow stop or an
  // exceeded limit. The caller empties the list.
  std::vector<KernelNoted>& noted() { return noted_; }

 private:
  // A kernel that takes longer than this to stop is reported in the log.
  static constexpr scheduler::Duration kSlowStop = std::chrono::milliseconds(50);
  static constexpr std::size_t kKernelsNotedMax = 1024;

  // A kernel whose end was requested.
  struct PendingEnd {
    device::WorkId id = 0;
    scheduler::TimePoint until;
    std::string message;  // Names the limit that the kernel exceeded.
  };
  std::optional<device::DeviceLoss> End(const KernelWatch::Overdue& overdue,
                                        scheduler::TimePoint now);
  device::DeviceLoss EndWithDevice(device::WorkId id, const std::string& why) const;
  // Adds a report unless one was made under this key before.
  void Note(const ClientState& client, const CommandSlot& command, std::uint64_t key,
            const std::string& what);
  [[gnu::cold]] void RecordSlowStop(const ClientState& client, const CommandSlot& command,
                                    scheduler::TimePoint now);

  device::Device& device_;
  const ClientRegistry& registry_;
  const KernelLimiterOptions options_;
  const bool has_limits_;
  KernelWatch watch_;
  std::vector<PendingEnd> pending_ends_;  // Oldest first.
  KernelsEnded ended_;
  std::vector<KernelNoted> noted_;
  // Keys of the reports made: CommandSlot::cost_kernel for slow stops and exceeded limits, its
  // complement for RecordNonpreemptible.
  std::set<std::uint64_t> kernels_noted_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_DISPATCH_KERNEL_LIMITER_H_
