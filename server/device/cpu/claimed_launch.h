// SPDX-License-Identifier: Apache-2.0
// Launches of kernels that the claim pass has transformed: server/ptx/passes/claim.h.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_CLAIMED_LAUNCH_H_
#define GPUSHARED_SERVER_DEVICE_CPU_CLAIMED_LAUNCH_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "server/device/device.h"
#include "server/executor/block_executor.h"

namespace gpushared::device {

class CpuModule;

// Pairs of words, counter and stop, for the launches of one module that are on the device at
// the same time. They lie behind the module's variables, where its kernels, and no others of the
// device, reach them.
//
// Thread-safe.
class ClaimSlots {
 public:
  static constexpr std::uint32_t kSlots = 32;
  static constexpr std::uint64_t kBytes = std::uint64_t{kSlots} * 128;

  // `base`: kBytes bytes, aligned to 64, that outlive the object.
  explicit ClaimSlots(std::uint64_t base) : base_(base) {}

  std::optional<std::uint32_t> Take();
  void Return(std::uint32_t slot);
  std::uint64_t CounterAddress(std::uint32_t slot) const { return base_ + slot * 128; }
  std::uint64_t StopAddress(std::uint32_t slot) const { return CounterAddress(slot) + 64; }

 private:
  const std::uint64_t base_;
  std::atomic<std::uint32_t> taken_ = 0;  // One bit a slot.
};

// One launch that runs as its claimed form: which blocks have run is what its counter says, and
// it stops by its stop word.
//
// RequestStop and units_done may be called by any thread, the rest stays as made. The module
// outlives it.
class ClaimedLaunch {
 public:
  // Null when it has to run as it is: the kernel has no claimed form, the grid is too large for
  // it, shared memory or slots are used up.
  static std::unique_ptr<ClaimedLaunch> Make(const LaunchWork& work);
  ClaimedLaunch(const ClaimedLaunch&) = delete;
  ClaimedLaunch& operator=(const ClaimedLaunch&) = delete;
  ~ClaimedLaunch();

  // Turns a launch of the client's kernel into one of the claimed form.
  void Apply(executor::Launch& launch) const;
  void RequestStop();
  // The prefix of blocks that has run, or is running.
  std::uint64_t units_done() const;

 private:
  ClaimedLaunch(const CpuModule& module, const LaunchWork& work, std::uint32_t slot);

  const CpuModule& module_;
  const std::uint32_t kernel_;
  const std::uint32_t slot_;
  const std::uint64_t first_unit_, units_total_;
  std::vector<std::byte> parameters_;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_CLAIMED_LAUNCH_H_
