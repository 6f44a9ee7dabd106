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

// The words of claimed launches (server/ptx/passes/claim.h). Each launch has a counter and a stop
// word in device memory outside of every client's range. A word of host memory takes a copy of the
// counter. Launches of one channel take turns in a few slots; their stream orders its accesses.
// A counter goes on where the launch before has left it: setting it would make the GPU wait.
//
// The stop word lies on the device because every block reads it, also unstarted ones that end at
// once. Reads over PCIe would take longer than the rest of the launch.
//
// Confined to the device thread; the context is current on it.
class ClaimWords {
 public:
  static constexpr std::size_t kSlotsPerChannel = 8;

  struct Slot {
    std::size_t number = 0;
    std::uint32_t epoch = 0;
  };

  // `epoch`: where epochs begin, for tests of their wrapping round.
  static Result<std::unique_ptr<ClaimWords>> Create(std::shared_ptr<CudaContext> context,
                                                    std::shared_ptr<UrgentWrites> stops,
                                                    std::size_t channels, std::uint32_t epoch = 0);
  ClaimWords(const ClaimWords&) = delete;
  ClaimWords& operator=(const ClaimWords&) = delete;
  ~ClaimWords();

  // Nothing when all of the channel's are in use.
  std::optional<Slot> Take(std::size_t channel);
  // When nothing of the launch is left but what its stream may still do to the words.
  void Return(const Slot& slot);

  DeviceAddress GetCounter(const Slot& slot) const { return device_ + slot.number * kSlotBytes; }
  DeviceAddress GetStop(const Slot& slot) const { return GetCounter(slot) + kStopOffset; }

  // Ahead of the launch, on its stream. Returns the base of the counter, for which the first block
  // is the next to be claimed. Sets the counter only where nobody knows what it says.
  Result<std::uint32_t> Begin(const Slot& slot, std::uint32_t first_block, Stream stream);
  // All of the launch has ended, and each of its blocks up to `blocks` has claimed one.
  void RecordClaimed(const Slot& slot, std::uint32_t base, std::uint32_t blocks) {
    counters_[slot.number] = base + blocks;
  }
  // Behind a launch that was stopped: copies the counter, for Claimed to read once that is known to
  // have ended.
  Status Read(const Slot& slot, Stream stream);
  std::uint32_t Claimed(const Slot& slot, std::uint32_t base) const {
    return host_[slot.number] - base;
  }
  // Blocks that have not begun end at once, soon. What fails here stops nothing and breaks nothing.
  void Stop(const Slot& slot) { (void)stops_->Write(GetStop(slot), slot.epoch); }

 private:
  // Counter and stop word in sectors of their own: one is written all the time, the other read.
  static constexpr std::uint64_t kSlotBytes = 256;
  static constexpr std::uint64_t kStopOffset = 128;
  // An epoch stays far from being half of all numbers ahead of the stop word, where it would look
  // as if it had been stopped.
  static constexpr std::uint32_t kRenewalEpochs = std::uint32_t{1} << 16;

  ClaimWords(std::shared_ptr<CudaContext> context, std::shared_ptr<UrgentWrites> stops)
      : context_(std::move(context)), stops_(std::move(stops)) {}
  Status Start(std::size_t slots, std::uint32_t epoch);

  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<UrgentWrites> stops_;
  DeviceAddress device_ = 0;
  std::uint32_t* host_ = nullptr;
  std::vector<std::uint32_t> epochs_;  // By slot, of its latest launch.
  std::vector<bool> taken_;            // By slot.
  // By slot: what the counter says when the next launch begins; empty where nobody knows.
  std::vector<std::optional<std::uint32_t>> counters_;
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CLAIM_WORDS_H_
