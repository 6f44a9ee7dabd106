// SPDX-License-Identifier: Apache-2.0
// The context that a worker has on its GPU, and the one place through which it is used.

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
#include "server/device/cuda/quiet_moments.h"
#include "server/device/device.h"

namespace gpushared::device::cuda {

// The primary context of one GPU: green contexts share its memory and modules, and a second
// context of this process would be time-sliced against it.
//
// Every call of the driver that needs the context is made through Call or Try: they see the codes
// after which the context is dead, whichever thread meets them first. What is left of a dead
// context is not given back (each attempt would fail, some would hang): it goes with the process.
//
// Thread-safe.
class CudaContext {
 public:
  // `ordinal` counts what CUDA_VISIBLE_DEVICES leaves. `wake` is called, from any thread, when the
  // context dies, and when a quiet moment has held work back; it must not block. `await_unhurried`:
  // see QuietMoments. The context is current on the calling thread after.
  static Result<std::shared_ptr<CudaContext>> Open(std::shared_ptr<const Driver> driver,
                                                   int ordinal, WakeFunction wake,
                                                   std::function<void()> await_unhurried = {});
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
  ~CudaContext();

  const Driver& driver() const { return *driver_; }
  DeviceNumber number() const { return number_; }

  // Makes it current on the calling thread, which it has to be for all of the below.
  Status Bind() const;

  template <typename... Parameters, typename... Arguments>
  Code Call(const DriverCall<Code(Parameters...)>& call, Arguments... arguments) {
    const Code code = call(arguments...);
    if (code != Code::kSuccess && EndsContext(code)) [[unlikely]]
      RecordDeath(call.name(), code);
    return code;
  }
  // The status says what was being done ("zeroing 2 MiB"), by which call, and what came of it.
  template <typename... Parameters, typename... Arguments>
  Status Try(const char* doing, const DriverCall<Code(Parameters...)>& call,
             Arguments... arguments) {
    const Code code = Call(call, arguments...);
    if (code == Code::kSuccess) [[likely]]
      return {};
    return Explain(doing, call.name(), code);
  }
  Status Explain(const char* doing, std::string_view call, Code code) const;

  // For calls of the driver that may wait for the GPU.
  QuietMoments& quiet() { return quiet_; }

  bool is_dead() const { return is_dead_.load(std::memory_order_acquire); }
  // kDeviceLost with the first call that met it; ok while it lives.
  Status death() const;
  // Work can no longer be followed, although the driver did not say that the context is dead.
  void GiveUp(const Status& why);

  // `otherwise` where the driver does not tell; older ones do not know the newer attributes.
  int Attribute(DeviceAttribute which, int otherwise) const;
  // One that a device cannot do without. The error says which: `name`, and its number.
  Result<int> NeededAttribute(DeviceAttribute which, const char* name) const;

  // Bytes of the GPU's memory that nobody has.
  Result<std::uint64_t> FreeBytes();

  // Sets how much local memory a thread may have, once and for all: a launch that needed more would
  // make the driver wait for all that runs, on the thread that launches. Before other threads use
  // the context, and before the free memory is shared out.
  Status LimitLocalMemory();
  // Empty where kernels may need so much for each thread; else what is wrong with them. Such
  // kernels are not to be launched.
  std::string WhyTooMuchLocalMemory(std::uint64_t bytes) const;
  // Memory that the limit is for and that was still free when it had been set: the driver takes it
  // at some launch. Nobody else may have it, since that launch would fail.
  std::uint64_t untaken_local_bytes() const { return untaken_local_bytes_; }

 private:
  CudaContext(std::shared_ptr<const Driver> driver, WakeFunction wake,
              std::function<void()> await_unhurried)
      : driver_(std::move(driver)),
        wake_(std::move(wake)),
        quiet_(wake_, std::move(await_unhurried)) {}
  Status Retain(int ordinal);
  void RecordDeath(const char* call, Code code);

  const std::shared_ptr<const Driver> driver_;
  const WakeFunction wake_;
  QuietMoments quiet_;
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
