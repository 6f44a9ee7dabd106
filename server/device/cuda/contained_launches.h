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

// The launches of one contained module that are with the driver, and the words that they share with
// the device.
//
// There is one record, and one place where kernels look whether they are to end. So a fault, or a
// Stop, is that of every launch of the module that is with the driver and has not ended: all of
// them end, early, and the next one waits until they have. They are one client's.
//
// Confined to the device thread, made and destroyed elsewhere, when no launch is left. But any
// thread may set the stop word (ContainWords::ReportAllToEnd), which is found at the next occasion.
class ContainedLaunches {
 public:
  // Takes the slot, which has to be zeroed before the first launch. `range`: the client's, which
  // outlives the object.
  ContainedLaunches(CudaRange& range, std::shared_ptr<ContainWords> words,
                    const ContainWords::Slot& slot, std::vector<ptx::FaultPlace> places)
      : range_(range), words_(std::move(words)), slot_(slot), places_(std::move(places)) {}
  ContainedLaunches(const ContainedLaunches&) = delete;
  ContainedLaunches& operator=(const ContainedLaunches&) = delete;
  ~ContainedLaunches();

  DeviceAddress control() const { return slot_.control; }
  DeviceAddress host_words() const { return slot_.host_words; }
  // Before any launch: the host's part of the words.
  void ZeroHostWords();

  // Before a launch goes to the driver. False: it has to wait, to be asked again.
  Result<bool> Enter();
  struct Left {
    ptx::ToldFault fault;   // Of kind kNone: it came to its end.
    bool was_told = false;  // It did nothing wrong: all kernels of the device were told to end.
  };
  // Once it has ended. `kernels`: of the module; `kernel`: the launch's.
  Left Leave(std::span<const KernelInfo> kernels, std::size_t kernel);
  // Instead of that: the driver did not take it.
  void Withdraw();
  // Ends all that has entered, soon.
  void Stop();

 private:
  enum class State : std::uint8_t {
    kClean,    // The words are zero, or a kernel has written to them of which nobody knows yet.
    kMustEnd,  // They are not: who is in must leave.
    kClearing  // They are being zeroed.
  };
  // What kernels have written; nothing where they have not.
  std::optional<ptx::FaultRecord> Record() const;
  // Whether a launch of the kernel may have written it. It was written while the launch was with
  // the driver, perhaps by another one.
  bool MayBeOf(const ptx::FaultRecord& record, std::span<const KernelInfo> kernels,
               std::size_t kernel) const;
  void GoOn();
  void EndAll();
  void RecordTold();
  Status Clear();

  CudaRange& range_;
  const std::shared_ptr<ContainWords> words_;
  const ContainWords::Slot slot_;
  const std::vector<ptx::FaultPlace> places_;
  std::size_t launches_ = 0;  // Entered and not left.
  State state_ = State::kClean;
  bool was_told_ = false;     // By another thread, see RecordTold. Within kMustEnd.
  bool was_written_ = false;  // By our own stream, ever.
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CONTAINED_LAUNCHES_H_
