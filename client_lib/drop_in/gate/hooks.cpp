// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/gate/hooks.h"

#include <bit>
#include <chrono>
#include <thread>

#include "client_lib/drop_in/gate/admission.h"
#include "client_lib/drop_in/gate/driver_functions.h"
#include "client_lib/drop_in/gate/function_names.h"
#include "client_lib/drop_in/gate/memory.h"
#include "client_lib/drop_in/gate/streams.h"
#include "client_lib/drop_in/gate/up_to_max.h"

namespace gpushared::drop_in::gate {
namespace {

using Work = Admission::Work;

template <typename Call>
Code Admitted(const Work& work, StreamHandle stream, Call call) {
  Admission* const admission = Admission::OfCurrent();
  if (admission == nullptr) [[unlikely]]
    return call();
  Admission::Launch launch;
  if (const Code code = admission->Enter(work, WithoutForm(stream), launch); code != Code::kSuccess)
    return code;
  const Code code = call();
  admission->Leave(launch, code);
  return code;
}

Work KernelOf(const void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
              unsigned block_x, unsigned block_y, unsigned block_z) {
  LaunchKey key = Mix(0, reinterpret_cast<std::uintptr_t>(function));
  key = Mix(key, std::uint64_t{grid_x} << 32 | grid_y);
  key = Mix(key, std::uint64_t{grid_z} << 32 | std::uint64_t{block_x} << 20 |
                     std::uint64_t{block_y} << 10 | block_z);
  return {.key = key, .function = function};
}
// Values with which the keys of graphs and copies begin (0 for kernels). They differ, because the
// handle of a graph or a size may equal the handle of a kernel.
constexpr LaunchKey kGraphs = 1, kCopies = 2;

enum class Copy : std::uint8_t {
  kDeviceToDevice,
  kHostToDevice,
  kDeviceToHost,
  kPeerToPeer,
  kFill
};
constexpr std::uint64_t kLargeCopy = std::uint64_t{1} << 20;

template <typename Call>
Code AdmittedCopy(Copy copy, std::uint64_t bytes, StreamHandle stream, Call call) {
  if (bytes < kLargeCopy) return call();
  // Sizes with the same four leading bits, which differ by less than an eighth, share a prediction.
  const auto width = static_cast<unsigned>(std::bit_width(bytes));
  const LaunchKey size = std::uint64_t{width} << 8 | bytes >> (width - 4);
  const LaunchKey key = Mix(Mix(kCopies, static_cast<std::uint64_t>(copy)), size);
  return Admitted({.key = key, .kind = Work::Kind::kCopy}, stream, call);
}

// Waits for calls of the gate that would invalidate the capture. The calls are short. The wait is
// limited because in a forked child, a call that another thread was making never ends.
void AwaitCallsOutside() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while (calls_outside_captures.load(std::memory_order_seq_cst) > 0 &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
}

template <typename Call>
Code BeginCapture(Call call) {
  // Counted before the call, so that no mark comes in between.
  open_captures.fetch_add(1, std::memory_order_seq_cst);
  AwaitCallsOutside();
  const Code code = call();
  if (code != Code::kSuccess) open_captures.fetch_sub(1, std::memory_order_seq_cst);
  return code;
}

// Compares the state of the stream before and after the call instead of testing the returned code,
// because an invalidated capture ends with an error.
template <typename Call>
Code EndCapture(StreamHandle stream, Call call) {
  const bool was_capturing = open_captures.load() > 0 && IsCapturing(stream);
  const Code code = call();
  if (was_capturing && !IsCapturing(stream)) open_captures.fetch_sub(1, std::memory_order_seq_cst);
  return code;
}

void DestroyEvents() {
  Admission::ForEach([](Admission& gpu) { gpu.DestroyEvents(); });
}
void ForgetContext(ContextHandle context) {
  Admission::ForEach([=](Admission& gpu) { gpu.ForgetContext(context); });
  if (MemoryQuota::Get().InOwner()) MemoryQuota::Get().ForgetContext(context);
}

}  // namespace

Code Init(Code (*native_init)(unsigned), unsigned flags) {
  const Code code = native_init(flags);
  return code == Code::kSuccess ? Admission::Begin() : code;
}

// ---- names of kernels

Code ModuleGetFunction(Code (*get)(FunctionHandle*, ModuleHandle, const char*),
                       FunctionHandle* function, ModuleHandle module, const char* name) {
  const Code code = get(function, module, name);
  if (code == Code::kSuccess) FunctionNames::Get().Add(*function, name);
  return code;
}
Code LibraryGetKernel(Code (*get)(KernelHandle*, LibraryHandle, const char*), KernelHandle* kernel,
                      LibraryHandle library, const char* name) {
  const Code code = get(kernel, library, name);
  if (code == Code::kSuccess) FunctionNames::Get().Add(*kernel, name);
  return code;
}
Code KernelGetFunction(Code (*get)(FunctionHandle*, KernelHandle), FunctionHandle* function,
                       KernelHandle kernel) {
  const Code code = get(function, kernel);
  if (code == Code::kSuccess) FunctionNames::Get().AddAlias(*function, kernel);
  return code;
}

// ---- launches

Code LaunchKernel(Code (*launch)(FunctionHandle, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned, unsigned, StreamHandle, void**, void**),
                  FunctionHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                  StreamHandle stream, void** parameters, void** extra) {
  return Admitted(KernelOf(function, grid_x, grid_y, grid_z, block_x, block_y, block_z), stream,
                  [&] {
                    return launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                  shared_bytes, stream, parameters, extra);
                  });
}

Code LaunchKernelEx(Code (*launch)(const LaunchConfig*, FunctionHandle, void**, void**),
                    const LaunchConfig* config, FunctionHandle function, void** parameters,
                    void** extra) {
  const auto call = [&] { return launch(config, function, parameters, extra); };
  if (config == nullptr) return call();
  return Admitted(KernelOf(function, config->grid_x, config->grid_y, config->grid_z,
                           config->block_x, config->block_y, config->block_z),
                  config->stream, call);
}

Code LaunchCooperativeKernel(Code (*launch)(FunctionHandle, unsigned, unsigned, unsigned, unsigned,
                                            unsigned, unsigned, unsigned, StreamHandle, void**),
                             FunctionHandle function, unsigned grid_x, unsigned grid_y,
                             unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned shared_bytes, StreamHandle stream, void** parameters) {
  return Admitted(KernelOf(function, grid_x, grid_y, grid_z, block_x, block_y, block_z), stream,
                  [&] {
                    return launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                  shared_bytes, stream, parameters);
                  });
}

Code LaunchCooperativeKernelMultiDevice(Code (*launch)(void*, unsigned, unsigned), void* launches,
                                        unsigned count, unsigned flags) {
  return Admitted(KernelOf(launches, count, 1, 1, 1, 1, 1), nullptr,
                  [&] { return launch(launches, count, flags); });
}

Code Launch(Code (*launch)(FunctionHandle), FunctionHandle function) {
  return Admitted(KernelOf(function, 1, 1, 1, 1, 1, 1), nullptr, [&] { return launch(function); });
}
Code LaunchGrid(Code (*launch)(FunctionHandle, int, int), FunctionHandle function, int width,
                int height) {
  return Admitted(
      KernelOf(function, static_cast<unsigned>(width), static_cast<unsigned>(height), 1, 1, 1, 1),
      nullptr, [&] { return launch(function, width, height); });
}
Code LaunchGridAsync(Code (*launch)(FunctionHandle, int, int, StreamHandle),
                     FunctionHandle function, int width, int height, StreamHandle stream) {
  return Admitted(
      KernelOf(function, static_cast<unsigned>(width), static_cast<unsigned>(height), 1, 1, 1, 1),
      stream, [&] { return launch(function, width, height, stream); });
}

Code GraphLaunch(Code (*launch)(GraphExecHandle, StreamHandle), GraphExecHandle graph,
                 StreamHandle stream) {
  return Admitted(
      {.key = Mix(kGraphs, reinterpret_cast<std::uintptr_t>(graph)), .kind = Work::Kind::kGraph},
      stream, [&] { return launch(graph, stream); });
}

// ---- copies

Code Memcpy(Code (*copy)(DevicePointer, DevicePointer, std::size_t), DevicePointer to,
            DevicePointer from, std::size_t bytes) {
  return AdmittedCopy(Copy::kDeviceToDevice, bytes, nullptr, [&] { return copy(to, from, bytes); });
}
Code MemcpyAsync(Code (*copy)(DevicePointer, DevicePointer, std::size_t, StreamHandle),
                 DevicePointer to, DevicePointer from, std::size_t bytes, StreamHandle stream) {
  return AdmittedCopy(Copy::kDeviceToDevice, bytes, stream,
                      [&] { return copy(to, from, bytes, stream); });
}
Code MemcpyHtoD(Code (*copy)(DevicePointer, const void*, std::size_t), DevicePointer to,
                const void* from, std::size_t bytes) {
  return AdmittedCopy(Copy::kHostToDevice, bytes, nullptr, [&] { return copy(to, from, bytes); });
}
Code MemcpyHtoDAsync(Code (*copy)(DevicePointer, const void*, std::size_t, StreamHandle),
                     DevicePointer to, const void* from, std::size_t bytes, StreamHandle stream) {
  return AdmittedCopy(Copy::kHostToDevice, bytes, stream,
                      [&] { return copy(to, from, bytes, stream); });
}
Code MemcpyDtoH(Code (*copy)(void*, DevicePointer, std::size_t), void* to, DevicePointer from,
                std::size_t bytes) {
  return AdmittedCopy(Copy::kDeviceToHost, bytes, nullptr, [&] { return copy(to, from, bytes); });
}
Code MemcpyDtoHAsync(Code (*copy)(void*, DevicePointer, std::size_t, StreamHandle), void* to,
                     DevicePointer from, std::size_t bytes, StreamHandle stream) {
  return AdmittedCopy(Copy::kDeviceToHost, bytes, stream,
                      [&] { return copy(to, from, bytes, stream); });
}
Code MemcpyPeerAsync(Code (*copy)(DevicePointer, ContextHandle, DevicePointer, ContextHandle,
                                  std::size_t, StreamHandle),
                     DevicePointer to, ContextHandle to_context, DevicePointer from,
                     ContextHandle from_context, std::size_t bytes, StreamHandle stream) {
  return AdmittedCopy(Copy::kPeerToPeer, bytes, stream,
                      [&] { return copy(to, to_context, from, from_context, bytes, stream); });
}
Code MemsetD8Async(Code (*fill)(DevicePointer, unsigned char, std::size_t, StreamHandle),
                   DevicePointer to, unsigned char value, std::size_t count, StreamHandle stream) {
  return AdmittedCopy(Copy::kFill, count, stream, [&] { return fill(to, value, count, stream); });
}
Code MemsetD16Async(Code (*fill)(DevicePointer, unsigned short, std::size_t, StreamHandle),
                    DevicePointer to, unsigned short value, std::size_t count,
                    StreamHandle stream) {
  return AdmittedCopy(Copy::kFill, MultiplyUpToMax(count, 2), stream,
                      [&] { return fill(to, value, count, stream); });
}
Code MemsetD32Async(Code (*fill)(DevicePointer, unsigned, std::size_t, StreamHandle),
                    DevicePointer to, unsigned value, std::size_t count, StreamHandle stream) {
  return AdmittedCopy(Copy::kFill, MultiplyUpToMax(count, 4), stream,
                      [&] { return fill(to, value, count, stream); });
}

// ---- captures

Code StreamBeginCapture(Code (*begin)(StreamHandle, int), StreamHandle stream, int mode) {
  return BeginCapture([&] { return begin(stream, mode); });
}
Code StreamBeginCaptureV1(Code (*begin)(StreamHandle), StreamHandle stream) {
  return BeginCapture([&] { return begin(stream); });
}
Code StreamBeginCaptureToGraph(Code (*begin)(StreamHandle, GraphHandle, const GraphNodeHandle*,
                                             const EdgeData*, std::size_t, int),
                               StreamHandle stream, GraphHandle graph, const GraphNodeHandle* needs,
                               const EdgeData* edges, std::size_t count, int mode) {
  return BeginCapture([&] { return begin(stream, graph, needs, edges, count, mode); });
}
Code StreamEndCapture(Code (*end)(StreamHandle, GraphHandle*), StreamHandle stream,
                      GraphHandle* graph) {
  return EndCapture(stream, [&] { return end(stream, graph); });
}

// ---- streams and contexts that end

Code StreamDestroy(Code (*destroy)(StreamHandle), StreamHandle stream) {
  Admission::ForEach([=](Admission& gpu) { gpu.ForgetStream(stream); });
  const bool was_capturing = open_captures.load() > 0 && IsCapturing(stream);
  const Code code = destroy(stream);
  if (was_capturing && code == Code::kSuccess) open_captures.fetch_sub(1);
  return code;
}

Code CtxDestroy(Code (*destroy)(ContextHandle), ContextHandle context) {
  DestroyEvents();
  const Code code = destroy(context);
  if (code == Code::kSuccess) ForgetContext(context);
  return code;
}

Code DevicePrimaryCtxRetain(Code (*retain)(ContextHandle*, int), ContextHandle* context,
                            int device) {
  const Code code = retain(context, device);
  if (code == Code::kSuccess && MemoryQuota::Get().InOwner()) {
    MemoryQuota::Get().SetPrimary(device, *context);
  }
  return code;
}

Code DevicePrimaryCtxEnd(Code (*end)(int), int device) {
  DestroyEvents();
  const Code code = end(device);
  unsigned flags = 0;
  int is_active = 1;
  if (code == Code::kSuccess && driver_functions.primary_get_state != nullptr &&
      driver_functions.primary_get_state(device, &flags, &is_active) == Code::kSuccess &&
      is_active == 0 && MemoryQuota::Get().InOwner()) {
    if (const ContextHandle context = MemoryQuota::Get().TakePrimary(device)) {
      ForgetContext(context);
    }
  }
  return code;
}

}  // namespace gpushared::drop_in::gate
