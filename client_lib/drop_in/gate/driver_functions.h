// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_DRIVER_FUNCTIONS_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_DRIVER_FUNCTIONS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in::gate {

// GPUs with numbers below this limit are gated; launches on other GPUs go to the driver at once.
constexpr std::size_t kGpusMax = 32;
constexpr bool IsGpu(int number) {
  return number >= 0 && static_cast<std::size_t>(number) < kGpusMax;
}

// Members of DriverFunctions: name, the newest form of the driver's function, and its parameters.
#define GPUSHARED_GATE_DRIVER_FUNCTIONS(X)                                                        \
  X(device_get_count, cuDeviceGetCount, (int*))                                                   \
  X(device_get_uuid, cuDeviceGetUuid_v2, (std::uint8_t*, int device))                             \
  X(ctx_get_current, cuCtxGetCurrent, (ContextHandle*))                                           \
  X(ctx_get_device, cuCtxGetDevice, (int*))                                                       \
  X(primary_get_state, cuDevicePrimaryCtxGetState, (int device, unsigned* flags, int* is_active)) \
  X(host_register, cuMemHostRegister_v2, (void*, std::size_t, unsigned flags))                    \
  X(host_get_device_pointer, cuMemHostGetDevicePointer_v2,                                        \
    (std::uint64_t*, void*, unsigned flags))                                                      \
  X(write_value, cuStreamWriteValue32_v2,                                                         \
    (StreamHandle, std::uint64_t address, std::uint32_t value, unsigned flags))                   \
  X(launch_host_function, cuLaunchHostFunc, (StreamHandle, void (*)(void*), void*))               \
  X(stream_is_capturing, cuStreamIsCapturing, (StreamHandle, int* status))                        \
  X(event_create, cuEventCreate, (EventHandle*, unsigned flags))                                  \
  X(event_record, cuEventRecord, (EventHandle, StreamHandle))                                     \
  X(event_query, cuEventQuery, (EventHandle))                                                     \
  X(event_elapsed, cuEventElapsedTime, (float* milliseconds, EventHandle, EventHandle))           \
  X(event_destroy, cuEventDestroy_v2, (EventHandle))                                              \
  X(stream_get_device, cuStreamGetDevice, (StreamHandle, int* device))                            \
  X(device_get_pool, cuDeviceGetMemPool, (PoolHandle*, int device))                               \
  X(pool_get_attribute, cuMemPoolGetAttribute, (PoolHandle, int attribute, void* value))          \
  X(pool_trim, cuMemPoolTrimTo, (PoolHandle, std::size_t bytes_kept))

// The installed driver's functions that the gate itself calls. A member is null if the driver lacks
// the function. Constant once ForwardToNativeDriver has returned.
struct DriverFunctions {
#define GPUSHARED_MEMBER(member, symbol, parameters) Code(*member) parameters = nullptr;
  GPUSHARED_GATE_DRIVER_FUNCTIONS(GPUSHARED_MEMBER)
#undef GPUSHARED_MEMBER

  // Whether launches can be marked and measured.
  bool is_complete() const {
    return device_get_count != nullptr && ctx_get_current != nullptr && ctx_get_device != nullptr &&
           launch_host_function != nullptr && event_create != nullptr && event_record != nullptr &&
           event_query != nullptr && event_elapsed != nullptr && event_destroy != nullptr;
  }
};
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): a process has one driver.
extern DriverFunctions driver_functions;

// Number of the process's streams that are being captured. Unless it is 0, nothing is marked,
// measured or delayed: many calls of the driver, by any thread, would invalidate a capture, and the
// launches themselves may be captured.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): see above.
extern std::atomic<int> open_captures;
// Number of threads in calls of the gate that would invalidate a capture. A thread that begins a
// capture waits until the number is 0, for at most 100 ms.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): see above.
extern std::atomic<int> calls_outside_captures;

// Delays captures that other threads begin during its lifetime. Converts to false if a capture is
// already open; the caller must then not call the driver.
class OutsideCaptures {
 public:
  OutsideCaptures() {
    // Sequentially consistent: either this load observes the capture, or the thread that begins the
    // capture observes this increment.
    calls_outside_captures.fetch_add(1, std::memory_order_seq_cst);
    is_true_ = open_captures.load(std::memory_order_seq_cst) == 0;
  }
  ~OutsideCaptures() { calls_outside_captures.fetch_sub(1, std::memory_order_release); }
  OutsideCaptures(const OutsideCaptures&) = delete;
  OutsideCaptures& operator=(const OutsideCaptures&) = delete;
  explicit operator bool() const { return is_true_; }

 private:
  bool is_true_;
};

// Handle that means the calling thread's default stream in both forms of a function
// (default_stream.h).
inline const StreamHandle kPerThreadStream = reinterpret_cast<StreamHandle>(2);

}  // namespace gpushared::drop_in::gate

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_DRIVER_FUNCTIONS_H_
