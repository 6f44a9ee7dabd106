// SPDX-License-Identifier: Apache-2.0
// A worker's context on its GPU, through which all accesses to the GPU are made.

#ifndef GPUSHARED_SERVER_DEVICE_CUDA_CUDA_CONTEXT_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_CUDA_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "gpushared/mutex.h"
#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/cuda/driver.h"
#include "server/device/cuda/idle_windows.h"
#include "server/device/device.h"

namespace gpushared::device::cuda {

// The primary context of one GPU. It is used because green contexts share its memory and modules,
// while a second context of this process would be time-sliced against it.
//
// Every driver call that needs the context is made through Call or Try. They detect the error codes
// after which the context is dead, whichever thread receives them first. The resources of a dead
// context are not freed, because every attempt would fail and some would hang; they are released
// when the process exits.
//
// Thread-safe.
class CudaContext {
 public:
  // `ordinal` counts the devices visible through CUDA_VISIBLE_DEVICES. `wake` is called, from any
  // thread, when the context dies and when an idle window has delayed work; it must not block.
  // `await_unhurried`: see IdleWindows. The context is current on the calling thread afterwards.
  static Result<std::shared_ptr<CudaContext>> Open(std::shared_ptr<const Driver> driver,
                                                   int ordinal, WakeFunction wake,
                                                   std::function<void()> await_unhurried = {});
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
  ~CudaContext();

  const Driver& driver() const { return *driver_; }
  DeviceNumber number() const { return number_; }

  // Makes the context current on the calling thread, as required by all calls below.
  Status Bind() const;

  template <typename... Parameters, typename... Arguments>
  Code Call(const DriverCall<Code(Parameters...)>& call, Arguments... arguments) {
    const Code code = call(arguments...);
    if (code != Code::kSuccess && EndsContext(code)) [[unlikely]]
      RecordDeath(call.name(), code);
    return code;
  }
  // The status contains the operation ("zeroing 2 MiB"), the driver call and its error.
  template <typename... Parameters, typename... Arguments>
  Status Try(const char* doing, const DriverCall<Code(Parameters...)>& call,
             Arguments... arguments) {
    const Code code = Call(call, arguments...);
    if (code == Code::kSuccess) [[likely]]
      return {};
    return Explain(doing, call.name(), code);
  }
  Status Explain(const char* doing, std::string_view call, Code code) const;

  // For driver calls that may wait for the GPU.
  IdleWindows& idle_windows() { return idle_windows_; }

  bool is_dead() const { return is_dead_.load(std::memory_order_acquire); }
  // Returns kDeviceLost with the call that first detected the death; ok while the context is alive.
  Status death() const;
  // Declares the context dead because work can no longer be tracked, although the driver has not
  // reported an error that ends the context.
  void GiveUp(const Status& why);

  // Returns `otherwise` if the driver does not report the attribute, because older drivers lack
  // newer attributes.
  int Attribute(DeviceAttribute which, int otherwise) const;
  // Returns an attribute that the device requires. The error contains `name` and the number of the
  // attribute.
  Result<int> NeededAttribute(DeviceAttribute which, const char* name) const;

  // Free memory of the GPU in bytes.
  Result<std::uint64_t> FreeBytes();

  // Sets the maximum local memory of a thread for all later launches, because a launch that needed
  // more would make the driver wait, on the launching thread, for everything that runs. Called
  // before other threads use the context and before free memory is divided.
  Status LimitLocalMemory();
  // Returns an empty string if kernels may use this much local memory for each thread. Otherwise
  // returns an error message, and kernels that use it must not be launched.
  std::string WhyTooMuchLocalMemory(std::uint64_t bytes) const;
  // Local memory that the limit allows but that the driver had not yet allocated when the limit was
  // set. This memory must be left free, because the driver allocates it during a later launch,
  // which would otherwise fail.
  std::uint64_t untaken_local_bytes() const { return untaken_local_bytes_; }

 private:
  CudaContext(std::shared_ptr<const Driver> driver, WakeFunction wake,
              std::function<void()> await_unhurried)
      : driver_(std::move(driver)),
        wake_(std::move(wake)),
        idle_windows_(wake_, std::move(await_unhurried)) {}
  Status Retain(int ordinal);
  void RecordDeath(const char* call, Code code);

  const std::shared_ptr<const Driver> driver_;
  const WakeFunction wake_;
  IdleWindows idle_windows_;
  DeviceNumber number_ = 0;
  Context context_ = nullptr;          // Null until retained.
  std::uint64_t local_bytes_max_ = 0;  // Per thread.
  std::uint64_t untaken_local_bytes_ = 0;
  std::atomic<bool> is_dead_{false};
  mutable Mutex mutex_;
  Status death_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CUDA_CONTEXT_H_
