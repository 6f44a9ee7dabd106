// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/driver.h"

#include <utility>

#include "client_lib/drop_in/device_list.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {

Driver& Driver::Get() {
  static Driver* const kDriver = new Driver;
  return *kDriver;
}

Code Driver::Init(TakeOver take_over) {
  const MutexLock lock(init_mutex_);
  if (is_ready_.load(std::memory_order_relaxed)) return Ready();
  if (native_) return native_->init(0);
  const Result<Mode> mode = ModeFromEnvironment();
  if (!mode.ok()) return Reject(Code::kInvalidValue, mode.status().message());
  if (*mode == Mode::kGate) {
    return Reject(Code::kInvalidValue,
                  "GPUSHARED_MODE=gate has no effect: it was set after this library was loaded, or "
                  "the table of calls cannot be written");
  }
  const Result<std::optional<Fallback>> fallback = FallbackFromEnvironment();
  if (!fallback.ok()) return Reject(Code::kInvalidValue, fallback.status().message());
  Result<std::vector<DeviceProperties>> list = ListDevices();
  if (!list.ok()) {
    const Code code = ConnectCode(list.status());
    return code == Code::kMpsConnectionFailed && *fallback == Fallback::kNative
               ? GoNative(take_over)
               : code;
  }
  if (list->empty()) return Reject(Code::kNoDevice, "CUDA_VISIBLE_DEVICES shows no device");
  for (DeviceProperties& properties : *list) {
    const int ordinal = static_cast<int>(devices_.size());
    devices_.push_back(std::make_unique<CudaDevice>(ordinal, std::move(properties)));
  }
  guard_.emplace();
  is_ready_.store(true, std::memory_order_release);
  return Code::kSuccess;
}

Code Driver::GoNative(TakeOver take_over) {
  const Result<NativeDriver> native = take_over();
  if (!native.ok()) {
    return Reject(Code::kMpsConnectionFailed,
                  "fallback rejected: " + std::string(native.status().message()));
  }
  if (IsLogging())
    LogLine("no server answers: " + native->path + " serves this program from now on");
  native_ = *native;
  return native_->init(0);
}

void Driver::EndContext(const std::shared_ptr<Context>& context) {
  context->End();
  events.RemoveIf([&](const CudaEvent& event) { return event.context == context; });
  streams.RemoveIf([&](const CudaStream& stream) { return &stream.context() == context.get(); });
  kernels.RemoveIf([&](const CudaKernel& kernel) { return kernel.module->BelongsTo(*context); });
  modules.RemoveIf([&](const CudaModule& module) { return module.BelongsTo(*context); });
  arrays.RemoveIf([&](const CudaArray& array) { return array.context == context; });
}

// ---- devices

Code CudaDevice::Sound(std::shared_ptr<Session>& session) {
  session = session_.lock();
  // A fault or the end of the server makes the session of the existing contexts unusable. Later
  // contexts get a new session.
  if (session != nullptr && session->sticky() == Code::kSuccess &&
      session->client().status().ok()) {
    return Code::kSuccess;
  }
  Result<std::shared_ptr<Session>> opened = Session::Open(properties_.id);
  if (!opened.ok()) return ConnectCode(opened.status());
  session = std::move(*opened);
  session_ = session;
  // Releases the previous session if it was opened without a context.
  without_context_ = nullptr;
  return Code::kSuccess;
}

Code CudaDevice::NewContext(unsigned flags, std::shared_ptr<Context>& made) {
  const MutexLock lock(session_mutex_);
  std::shared_ptr<Session> session;
  if (const Code code = Sound(session); code != Code::kSuccess) return code;
  made = std::make_shared<Context>(std::move(session), ordinal_, flags);
  without_context_ = nullptr;
  return Code::kSuccess;
}

Code CudaDevice::AnySession(std::shared_ptr<Session>& session) {
  const MutexLock lock(session_mutex_);
  const std::shared_ptr<Session> before = session_.lock();
  const Code code = Sound(session);
  if (code == Code::kSuccess && session != before) without_context_ = session;
  return code;
}

std::shared_ptr<Session> CudaDevice::LiveSession() {
  const MutexLock lock(session_mutex_);
  return session_.lock();
}

std::shared_ptr<MemoryPool> PoolChoice::Default() {
  const MutexLock lock(mutex_);
  if (default_ == nullptr) {
    auto made = std::make_shared<MemoryPool>(ordinal_, 0);
    const PoolHandle handle = Driver::Get().pools.Insert(made);
    if (handle == nullptr) return nullptr;
    made->set_handle(handle);
    default_ = std::move(made);
  }
  return default_;
}

std::shared_ptr<MemoryPool> PoolChoice::Now() {
  {
    const MutexLock lock(mutex_);
    if (set_ != nullptr) return set_;
  }
  return Default();
}

void PoolChoice::Set(std::shared_ptr<MemoryPool> pool) {
  const MutexLock lock(mutex_);
  set_ = std::move(pool);
}

void PoolChoice::Forget(const std::shared_ptr<MemoryPool>& pool) {
  const MutexLock lock(mutex_);
  if (set_ == pool) set_ = nullptr;
}

Code CudaDevice::StartPrimary() {
  std::shared_ptr<Context> made;
  if (const Code code = NewContext(primary_flags_, made); code != Code::kSuccess) return code;
  auto& contexts = Driver::Get().contexts;
  if (primary_handle_ == nullptr) {
    primary_handle_ = contexts.Insert(made);
    if (primary_handle_ == nullptr) return Code::kOutOfMemory;
  } else {
    contexts.Replace(primary_handle_, made);
  }
  made->set_handle(primary_handle_);
  primary_ = std::move(made);
  return Code::kSuccess;
}

void CudaDevice::EndPrimary() {
  Driver& driver = Driver::Get();
  driver.EndContext(primary_);
  // The handle remains valid but must not keep the context, which would keep the session.
  driver.contexts.Replace(primary_handle_, Context::Ended(ordinal_));
  primary_ = nullptr;
}

Code CudaDevice::RetainPrimary(ContextHandle& handle) {
  const MutexLock lock(primary_mutex_);
  if (primary_ == nullptr) {
    if (const Code code = StartPrimary(); code != Code::kSuccess) return code;
  }
  ++retained_;
  handle = primary_handle_;
  return Code::kSuccess;
}

Code CudaDevice::ReleasePrimary() {
  const MutexLock lock(primary_mutex_);
  if (retained_ == 0) return Code::kInvalidContext;
  if (--retained_ == 0 && primary_ != nullptr) EndPrimary();
  return Code::kSuccess;
}

Code CudaDevice::ResetPrimary() {
  const MutexLock lock(primary_mutex_);
  if (primary_ == nullptr) return Code::kSuccess;
  EndPrimary();
  // Owners of the primary context continue with a new incarnation.
  return retained_ == 0 ? Code::kSuccess : StartPrimary();
}

void CudaDevice::SetPrimaryFlags(unsigned flags) {
  const MutexLock lock(primary_mutex_);
  primary_flags_ = flags;
  if (primary_ != nullptr) primary_->set_flags(flags);
}

void CudaDevice::PrimaryState(unsigned& flags, bool& is_active) {
  const MutexLock lock(primary_mutex_);
  flags = primary_flags_;
  is_active = primary_ != nullptr;
}

bool CudaDevice::IsPrimary(ContextHandle handle) {
  const MutexLock lock(primary_mutex_);
  return handle != nullptr && handle == primary_handle_;
}

}  // namespace gpushared::drop_in
