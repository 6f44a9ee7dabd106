// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_CONTAINED_LAUNCHES_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_CONTAINED_LAUNCHES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/cuda/contain_words.h"
#include "server/device/cuda/cuda_memory.h"
#include "server/device/device.h"
#include "server/ptx/passes/fence.h"

namespace gpushared::device::cuda {

// The launches of one contained module that were passed to the driver and have not ended, and the
// words that they share with the device.
//
// A module has one fault record and one stop word. Therefore a fault or a Stop affects all these
// launches: they end early, and the next launch waits until they have ended. They belong to the
// same client.
//
// Confined to the device thread; created and destroyed elsewhere, when there are no launches. Any
// thread may set the stop word (ContainWords::ReportAllToEnd), which is detected at the next
// opportunity.
class ContainedLaunches {
 public:
  // Takes ownership of the slot, which must be zeroed before the first launch. `range`: address
  // range of the client; must outlive the object.
  ContainedLaunches(CudaRange& range, std::shared_ptr<ContainWords> words,
                    const ContainWords::Slot& slot, std::vector<ptx::FaultPlace> places)
      : range_(range), words_(std::move(words)), slot_(slot), places_(std::move(places)) {}
  ContainedLaunches(const ContainedLaunches&) = delete;
  ContainedLaunches& operator=(const ContainedLaunches&) = delete;
  ~ContainedLaunches();

  DeviceAddress control() const { return slot_.control; }
  DeviceAddress host_words() const { return slot_.host_words; }
  // Zeroes the host's part of the words. Called before any launch.
  void ZeroHostWords();

  // Called before a launch is passed to the driver. Returns false if the launch has to wait; the
  // caller then tries again.
  Result<bool> Enter();
  struct Left {
    ptx::FaultDescription fault;  // Of kind kNone if the launch ran to its end.
    // Whether the launch ended without causing a fault, because all kernels were asked to end.
    bool ended_on_request = false;
  };
  // Called when the launch has ended. `kernels`: all kernels of the module; `kernel`: index of the
  // launched one.
  Left Leave(std::span<const KernelInfo> kernels, std::size_t kernel);
  // Called instead of Leave if the driver rejected the launch.
  void Withdraw();
  // Makes all entered launches end soon.
  void Stop();

 private:
  enum class State : std::uint8_t {
    kClean,    // The words are zero, or a kernel's write was not noticed yet.
    kMustEnd,  // The words are set; they are cleared when all entered launches have left.
    kClearing  // The words are being zeroed.
  };
  // Returns what kernels have written, if anything.
  std::optional<ptx::FaultRecord> Record() const;
  // Whether a launch of the kernel may have written the record. Another launch that was in flight
  // at the same time may have written it instead.
  bool MayBeOf(const ptx::FaultRecord& record, std::span<const KernelInfo> kernels,
               std::size_t kernel) const;
  void GoOn();
  void EndAll();
  void RecordEndRequest();
  Status Clear();

  CudaRange& range_;
  const std::shared_ptr<ContainWords> words_;
  const ContainWords::Slot slot_;
  const std::vector<ptx::FaultPlace> places_;
  std::size_t launches_ = 0;  // Number of launches that have entered and not left.
  State state_ = State::kClean;
  // Whether another thread set the stop word, see RecordEndRequest. Only in state kMustEnd.
  bool ended_on_request_ = false;
  bool was_written_ = false;  // Whether the stop word's stream has ever written the words.
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CONTAINED_LAUNCHES_H_
