// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_CLAIM_WORDS_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_CLAIM_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/cuda/cuda_context.h"
#include "server/device/cuda/urgent_writes.h"

namespace gpushared::device::cuda {

// The words of preemptible launches (server/ptx/passes/claim.h). Each launch has a counter and a
// stop word in device memory outside of every client's range, and a word of host memory that
// receives a copy of the counter. Launches of one channel share a few slots, and the channel's
// stream orders the accesses to them. A counter is reset only if its value is unknown, as after a
// stopped launch, because a reset makes the GPU wait.
//
// The stop word is in device memory because every block reads it, even after a stop, and reads over
// PCIe would take longer than the rest of a stopped launch.
//
// Confined to the device thread; the context is current on it.
class ClaimWords {
 public:
  static constexpr std::size_t kSlotsPerChannel = 8;

  struct Slot {
    std::size_t number = 0;
    std::uint32_t epoch = 0;
  };

  // `epoch`: initial epoch; tests use it to check wraparound.
  static Result<std::unique_ptr<ClaimWords>> Create(std::shared_ptr<CudaContext> context,
                                                    std::shared_ptr<UrgentWrites> stops,
                                                    std::size_t channels, std::uint32_t epoch = 0);
  ClaimWords(const ClaimWords&) = delete;
  ClaimWords& operator=(const ClaimWords&) = delete;
  ~ClaimWords();

  // Returns a free slot of the channel; nothing if all of its slots are in use.
  std::optional<Slot> Take(std::size_t channel);
  // Called when only work on the channel's stream may still access the slot's words.
  void Return(const Slot& slot);

  DeviceAddress GetCounter(const Slot& slot) const { return device_ + slot.number * kSlotBytes; }
  DeviceAddress GetStop(const Slot& slot) const { return GetCounter(slot) + kStopOffset; }

  // Prepares a launch on its stream. Returns the base, the counter's value that stands for block 0,
  // chosen so that `first_block` is claimed first. Resets the counter only if its value is unknown.
  Result<std::uint32_t> Begin(const Slot& slot, std::uint32_t first_block, Stream stream);
  // Records that the launch has ended and that the counter has counted to `base` + `blocks`.
  void RecordClaimed(const Slot& slot, std::uint32_t base, std::uint32_t blocks) {
    counters_[slot.number] = base + blocks;
  }
  // Called after a stopped launch: copies the counter, so that Claimed can read it once the copy is
  // known to have ended.
  Status Read(const Slot& slot, Stream stream);
  std::uint32_t Claimed(const Slot& slot, std::uint32_t base) const {
    return host_[slot.number] - base;
  }
  // Makes blocks that have not started end at once. Failures are ignored, because the launch then
  // just runs to its end.
  void Stop(const Slot& slot) { (void)stops_->Write(GetStop(slot), slot.epoch); }

 private:
  // The counter and the stop word use separate sectors: one is written often, the other read often.
  static constexpr std::uint64_t kSlotBytes = 256;
  static constexpr std::uint64_t kStopOffset = 128;
  // Number of epochs after which the stop word is renewed. A stop word that is older than a
  // launch's epoch by half of the value range would appear to be set.
  static constexpr std::uint32_t kRenewalEpochs = std::uint32_t{1} << 16;

  ClaimWords(std::shared_ptr<CudaContext> context, std::shared_ptr<UrgentWrites> stops)
      : context_(std::move(context)), stops_(std::move(stops)) {}
  Status Start(std::size_t slots, std::uint32_t epoch);

  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<UrgentWrites> stops_;
  DeviceAddress device_ = 0;
  std::uint32_t* host_ = nullptr;
  std::vector<std::uint32_t> epochs_;  // By slot, epoch of its last launch.
  std::vector<bool> taken_;            // By slot.
  // By slot: value of the counter when the next launch starts; empty if unknown.
  std::vector<std::optional<std::uint32_t>> counters_;
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CLAIM_WORDS_H_
