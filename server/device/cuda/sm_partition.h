// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_SM_PARTITION_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_SM_PARTITION_H_

#include <cstdint>
#include <memory>

#include "gpushared/result.h"

#include "server/device/cuda/cuda_context.h"

namespace gpushared::device::cuda {

// Some of the GPU's multiprocessors, as a green context. It shares memory and modules with the
// primary context. Streams and their events are created in it, and work on these streams uses only
// its multiprocessors. Partitions for different limits may overlap, because they are limits, not
// reservations.
//
// Confined to the thread that created it; destroyed after its streams and events.
class SmPartition {
 public:
  // Creates the largest partition of at most `asked` multiprocessors. If the driver allows none
  // that is so small, creates the smallest one. kUnsupported names the call that the driver lacks.
  static Result<std::unique_ptr<SmPartition>> Create(std::shared_ptr<CudaContext> context,
                                                     std::uint32_t asked);
  SmPartition(const SmPartition&) = delete;
  SmPartition& operator=(const SmPartition&) = delete;
  ~SmPartition();

  std::uint32_t multiprocessors() const { return multiprocessors_; }
  // Context that can be made current, on one thread at a time. Objects created while it is current
  // belong to the partition.
  Context context() const { return context_of_part_; }
  Result<Stream> MakeStream(int priority) const;

 private:
  SmPartition(std::shared_ptr<CudaContext> context, GreenContext green,
              std::uint32_t multiprocessors)
      : context_(std::move(context)), green_(green), multiprocessors_(multiprocessors) {}

  const std::shared_ptr<CudaContext> context_;
  const GreenContext green_;
  Context context_of_part_ = nullptr;
  const std::uint32_t multiprocessors_;
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_SM_PARTITION_H_
