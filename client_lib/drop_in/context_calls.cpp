// SPDX-License-Identifier: Apache-2.0
// Contexts: primary and created ones, the stack of each thread, limits and settings.
#include <cstring>
#include <memory>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/driver.h"
#include "client_lib/drop_in/host_calls.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

constexpr unsigned kContextFlagsMax = 0xff;
// cuCtxGetApiVersion returns this for contexts of every form of cuCtxCreate.
constexpr unsigned kApiVersion = 3020;

// Finds a device. Fails if the driver is not ready.
Code FindDevice(int ordinal, CudaDevice*& device) {
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  device = driver.DeviceAt(ordinal);
  return device == nullptr ? Code::kInvalidDevice : Code::kSuccess;
}

// Returns the context of a handle, or the current one for null.
Code FindContext(ContextHandle handle, std::shared_ptr<Context>& context) {
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  if (handle == nullptr) {
    const Current current(Current::OnFault::kAllow);
    if (current.ok()) context = current.shared();
    return current.code();
  }
  context = driver.contexts.Find(handle);
  if (context == nullptr) return Code::kInvalidContext;
  return context->has_ended() ? Code::kContextIsDestroyed : Code::kSuccess;
}

}  // namespace

// ---- primary contexts

Code DevicePrimaryCtxRetain(ContextHandle* context, int ordinal) {
  if (AnyNull(context)) return Code::kInvalidValue;
  CudaDevice* device = nullptr;
  if (const Code code = FindDevice(ordinal, device); code != Code::kSuccess) return code;
  return device->RetainPrimary(*context);
}

Code DevicePrimaryCtxRelease(int ordinal) {
  CudaDevice* device = nullptr;
  if (const Code code = FindDevice(ordinal, device); code != Code::kSuccess) return code;
  return device->ReleasePrimary();
}

Code DevicePrimaryCtxReset(int ordinal) {
  CudaDevice* device = nullptr;
  if (const Code code = FindDevice(ordinal, device); code != Code::kSuccess) return code;
  return device->ResetPrimary();
}

Code DevicePrimaryCtxSetFlags(int ordinal, unsigned flags) {
  if (flags > kContextFlagsMax) return Code::kInvalidValue;
  CudaDevice* device = nullptr;
  if (const Code code = FindDevice(ordinal, device); code != Code::kSuccess) return code;
  device->SetPrimaryFlags(flags);
  return Code::kSuccess;
}

Code DevicePrimaryCtxGetState(int ordinal, unsigned* flags, int* is_active) {
  if (AnyNull(flags, is_active)) return Code::kInvalidValue;
  CudaDevice* device = nullptr;
  if (const Code code = FindDevice(ordinal, device); code != Code::kSuccess) return code;
  bool active = false;
  device->PrimaryState(*flags, active);
  *is_active = active ? 1 : 0;
  return Code::kSuccess;
}

// ---- created contexts

Code CtxCreate(ContextHandle* context, unsigned flags, int ordinal) {
  if (AnyNull(context) || flags > kContextFlagsMax) return Code::kInvalidValue;
  CudaDevice* device = nullptr;
  if (const Code code = FindDevice(ordinal, device); code != Code::kSuccess) return code;
  std::shared_ptr<Context> made;
  if (const Code code = device->NewContext(flags, made); code != Code::kSuccess) return code;
  Driver& driver = Driver::Get();
  const ContextHandle handle = driver.contexts.Insert(made);
  if (handle == nullptr) return Code::kOutOfMemory;
  made->set_handle(handle);
  if (const Code code = ContextStack::Get().Push(handle); code != Code::kSuccess) {
    driver.contexts.Remove(handle);
    return code;
  }
  *context = handle;
  return Code::kSuccess;
}

Code CtxCreateV3(ContextHandle* context, void*, int affinity_count, unsigned flags, int ordinal) {
  if (affinity_count != 0) {
    return Reject(Code::kUnsupportedExecAffinity, "contexts cannot be bound to multiprocessors");
  }
  return CtxCreate(context, flags, ordinal);
}

Code CtxCreateV4(ContextHandle* context, void* parameters, unsigned flags, int ordinal) {
  ContextParameters asked{};
  if (parameters != nullptr) std::memcpy(&asked, parameters, sizeof asked);
  if (asked.graphics != nullptr) {
    return Reject(Code::kNotSupported, "contexts cannot be shared with graphics");
  }
  return CtxCreateV3(context, asked.affinities, asked.affinity_count, flags, ordinal);
}

Code CtxDestroy(ContextHandle handle) {
  std::shared_ptr<Context> context;
  if (handle == nullptr) return Code::kInvalidContext;
  if (const Code code = FindContext(handle, context); code != Code::kSuccess) return code;
  Driver& driver = Driver::Get();
  if (driver.DeviceAt(context->ordinal())->IsPrimary(handle)) {
    return Reject(Code::kInvalidContext, "a primary context is released, not destroyed");
  }
  if (ContextStack::Get().top() == handle) ContextStack::Get().Pop();
  driver.contexts.Remove(handle);
  driver.EndContext(context);
  return Code::kSuccess;
}

// CUDA 4 removed the attachment counts; the remaining functions keep or destroy the context.
Code CtxAttach(ContextHandle* context, unsigned flags) {
  if (AnyNull(context) || flags != 0) return Code::kInvalidValue;
  const Current current;
  if (current.ok()) *context = ContextStack::Get().top();
  return current.code();
}

Code CtxDetach(ContextHandle context) { return CtxDestroy(context); }

// ---- stack of the thread

Code CtxPushCurrent(ContextHandle context) {
  const Code code = Driver::Get().Ready();
  return code == Code::kSuccess ? ContextStack::Get().Push(context) : code;
}

Code CtxPopCurrent(ContextHandle* context) {
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  if (ContextStack::Get().empty()) return Code::kInvalidContext;
  const ContextHandle popped = ContextStack::Get().Pop();
  if (context != nullptr) *context = popped;
  return Code::kSuccess;
}

Code CtxSetCurrent(ContextHandle context) {
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  ContextStack& stack = ContextStack::Get();
  if (context != nullptr && Driver::Get().contexts.Find(context) == nullptr) {
    return Code::kInvalidContext;
  }
  stack.Pop();
  return context == nullptr ? Code::kSuccess : stack.Push(context);
}

Code CtxGetCurrent(ContextHandle* context) {
  if (AnyNull(context)) return Code::kInvalidValue;
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  *context = ContextStack::Get().top();
  return Code::kSuccess;
}

// ---- properties and settings

Code CtxGetDeviceV2(int* device, ContextHandle handle) {
  if (AnyNull(device)) return Code::kInvalidValue;
  std::shared_ptr<Context> context;
  const Code code = FindContext(handle, context);
  if (code == Code::kSuccess) *device = context->ordinal();
  return code;
}

Code CtxGetDevice(int* device) { return CtxGetDeviceV2(device, nullptr); }

Code CtxGetFlags(unsigned* flags) {
  if (AnyNull(flags)) return Code::kInvalidValue;
  const Current current(Current::OnFault::kAllow);
  if (current.ok()) *flags = current->flags();
  return current.code();
}

Code CtxSetFlags(unsigned flags) {
  if (flags > kContextFlagsMax) return Code::kInvalidValue;
  const Current current(Current::OnFault::kAllow);
  if (current.ok()) current->set_flags(flags);
  return current.code();
}

Code CtxGetId(ContextHandle handle, unsigned long long* id) {
  if (AnyNull(id)) return Code::kInvalidValue;
  std::shared_ptr<Context> context;
  const Code code = FindContext(handle, context);
  if (code == Code::kSuccess) *id = context->id();
  return code;
}

Code CtxGetApiVersion(ContextHandle handle, unsigned* version) {
  if (AnyNull(version)) return Code::kInvalidValue;
  std::shared_ptr<Context> context;
  const Code code = FindContext(handle, context);
  if (code == Code::kSuccess) *version = kApiVersion;
  return code;
}

Code CtxGetLimit(std::size_t* value, int limit) {
  if (AnyNull(value)) return Code::kInvalidValue;
  const Current current;
  return current.ok() ? current->GetLimit(limit, *value) : current.code();
}

Code CtxSetLimit(int limit, std::size_t value) {
  const Current current;
  return current.ok() ? current->SetLimit(limit, value) : current.code();
}

// Caches and banks are not configurable; programs set them as hints.
Code CtxGetCacheConfig(int* config) {
  if (AnyNull(config)) return Code::kInvalidValue;
  *config = 0;
  return Current().code();
}
Code CtxSetCacheConfig(int) { return Current().code(); }
Code CtxGetSharedMemConfig(int* config) {
  if (AnyNull(config)) return Code::kInvalidValue;
  *config = 1;  // Banks of four bytes.
  return Current().code();
}
Code CtxSetSharedMemConfig(int) { return Current().code(); }
Code CtxResetPersistingL2Cache() { return Current().code(); }

// Streams have no priorities among themselves, because the class of the session determines the
// order.
Code CtxGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = 0;
  return Current(Current::OnFault::kAllow).code();
}

Code CtxSynchronize() { return CtxSynchronizeV2(nullptr); }

Code CtxSynchronizeV2(ContextHandle handle) {
  std::shared_ptr<Context> context;
  if (const Code code = FindContext(handle, context); code != Code::kSuccess) return code;
  Session& session = context->session();
  if (const Code fault = session.sticky(); fault != Code::kSuccess) return fault;
  Driver& driver = Driver::Get();
  if (driver.captures.Any()) {
    const MutexLock lock(GraphsMutex());
    const Code code = driver.captures.RejectInContext(*context);
    if (code != Code::kSuccess) return code;
  }
  HostCalls::Get().Await(*context);
  return session.AfterWork(session.client().Synchronize());
}

}  // namespace gpushared::drop_in
