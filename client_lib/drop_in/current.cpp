// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/current.h"

#include <unistd.h>

#include <utility>

#include "client_lib/drop_in/default_stream.h"
#include "client_lib/drop_in/host_calls.h"
#include "client_lib/drop_in/log.h"
#include "client_lib/drop_in/stream_scope.h"

namespace gpushared::drop_in {

namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): each thread has its own.
thread_local ContextStack* stack_of_this_thread = nullptr;

// Releases the contexts of a thread when it ends. The main thread keeps its contexts, because
// static destructors of the program run later and may call the driver.
struct StackReaper {
  ~StackReaper() {
    if (::gettid() != ::getpid()) delete std::exchange(stack_of_this_thread, nullptr);
  }
};

}  // namespace

ContextStack& ContextStack::Get() {
  if (stack_of_this_thread == nullptr) [[unlikely]] {
    static thread_local StackReaper reaper;
    [[maybe_unused]] const StackReaper& made = reaper;
    stack_of_this_thread = new ContextStack;
  }
  return *stack_of_this_thread;
}

const std::shared_ptr<Context>& ContextStack::TopContext() {
  Entry& entry = entries_.back();
  if (entry.context == nullptr || entry.context->has_ended()) {
    entry.context = Driver::Get().contexts.Find(entry.handle);
    if (entry.context != nullptr && entry.context->has_ended()) entry.context = nullptr;
  }
  return entry.context;
}

Code ContextStack::Push(ContextHandle handle) {
  std::shared_ptr<Context> context = Driver::Get().contexts.Find(handle);
  if (context == nullptr) return Code::kInvalidContext;
  if (entries_.size() == kDepthMax) {
    return Reject(Code::kOutOfMemory,
                  "push rejected: this thread's stack holds 4096 contexts, "
                  "more are not allowed");
  }
  entries_.push_back({handle, std::move(context)});
  return Code::kSuccess;
}

ContextHandle ContextStack::Pop() {
  const ContextHandle handle = top();
  if (!entries_.empty()) entries_.pop_back();
  return handle;
}

Current::Current(OnFault on_fault) : code_(Driver::Get().Ready()) {
  if (code_ != Code::kSuccess) return;
  if (HostCalls::IsInside()) {
    code_ = Reject(Code::kNotPermitted, "a function that runs in a stream may not call the driver");
    return;
  }
  context_ = StreamScope::context();
  if (context_ == nullptr) {
    ContextStack& stack = ContextStack::Get();
    if (stack.empty()) {
      code_ = Code::kInvalidContext;
      return;
    }
    context_ = &stack.TopContext();
  }
  if (*context_ == nullptr || (*context_)->has_ended()) {
    code_ = Code::kContextIsDestroyed;
  } else if (on_fault == OnFault::kReject) {
    code_ = (*context_)->session().sticky();
  }
}

Submission::Submission(CudaStream& stream)
    : stream_(stream), order_([&] {
        HostCalls& host_calls = HostCalls::Get();
        if (host_calls.has_any()) [[unlikely]]
          host_calls.AwaitBefore(stream);
        return stream.context().Order(stream);
      }()) {}

std::shared_ptr<CudaArray> FindArray(const Current& current, ArrayHandle handle) {
  std::shared_ptr<CudaArray> array = Driver::Get().arrays.Find(handle);
  const bool is_here = array != nullptr && &array->context->session() == &current->session();
  return is_here ? array : nullptr;
}

StreamChoice::StreamChoice(const Current& current, StreamHandle handle) : code_(current.code()) {
  if (!current.ok()) return;
  if (handle == nullptr) {
    handle = DefaultStreamScope::current() == DefaultStream::kLegacy ? LegacyStream()
                                                                     : PerThreadStream();
  }
  if (handle == LegacyStream()) {
    stream_ = current->FindLegacyStream();
    if (stream_ != nullptr) [[likely]]
      return;
  }
  if (handle == LegacyStream() || handle == PerThreadStream()) {
    Result<std::shared_ptr<CudaStream>> stream =
        handle == LegacyStream() ? current->LegacyStream() : current->ThreadStream();
    if (stream.ok()) {
      stream_ = std::move(*stream);
    } else {
      code_ = current.GetCode(stream.status());
    }
    return;
  }
  stream_ = StreamScope::Find(handle);
  if (stream_ == nullptr) {
    code_ = Code::kInvalidHandle;
  } else {
    code_ = stream_->context().session().sticky();
  }
}

bool StreamChoice::is_captured() const {
  Driver& driver = Driver::Get();
  if (!ok() || !driver.captures.Any()) return false;
  const MutexLock lock(GraphsMutex());
  return driver.captures.Find(*stream_) != nullptr;
}

Code StreamChoice::Capture(Work work) const {
  Driver& driver = Driver::Get();
  const MutexLock lock(GraphsMutex());
  // Another thread may have ended the capture in the meantime.
  if (driver.captures.Find(*stream_) == nullptr) return Code::kCaptureInvalidated;
  return driver.captures.Add(*stream_, std::move(work));
}

Code StreamChoice::CheckCaptures() const {
  Driver& driver = Driver::Get();
  const MutexLock lock(GraphsMutex());
  return driver.captures.RejectCommand(*stream_);
}

Code RejectWhileCapturing() {
  Driver& driver = Driver::Get();
  if (!driver.captures.Any()) [[likely]]
    return Code::kSuccess;
  const MutexLock lock(GraphsMutex());
  return driver.captures.RejectUnsafe();
}

}  // namespace gpushared::drop_in
