// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_URGENT_WRITES_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_URGENT_WRITES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/cuda/cuda_context.h"

namespace gpushared::device::cuda {

// Writes words of device memory that running kernels poll, in order, on a stream of the highest
// priority that is used for nothing else.
//
// Confined to the device thread except for Wait, which any thread may call; the context is current
// on the calling thread.
class UrgentWrites {
 public:
  static Result<std::shared_ptr<UrgentWrites>> Create(std::shared_ptr<CudaContext> context);
  UrgentWrites(const UrgentWrites&) = delete;
  UrgentWrites& operator=(const UrgentWrites&) = delete;
  ~UrgentWrites();

  Status Write(DeviceAddress word, std::uint32_t value);
  Status Fill(DeviceAddress first, std::uint32_t value, std::size_t words);
  // From now on HasPassed reports whether all earlier writes are complete.
  Status Mark();
  Result<bool> HasPassed();
  // Waits until all writes are complete.
  Status Wait();

 private:
  explicit UrgentWrites(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {}
  Status Start();

  const std::shared_ptr<CudaContext> context_;
  Stream stream_ = nullptr;
  Event mark_ = nullptr;
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_URGENT_WRITES_H_
