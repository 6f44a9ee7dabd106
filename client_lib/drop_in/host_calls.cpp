// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/host_calls.h"

#include <signal.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

namespace gpushared::drop_in {
namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): each thread has its own.
thread_local bool is_inside = false;

}  // namespace

HostCalls& HostCalls::Get() {
  static HostCalls* const kCalls = new HostCalls;
  return *kCalls;
}

bool HostCalls::IsInside() { return is_inside; }

bool HostCalls::AddAfterOthers(const std::shared_ptr<CudaStream>& stream,
                               const std::function<void(Code)>& call) {
  const MutexLock lock(mutex_);
  if (!stream->has_host_calls()) return false;
  Append({.stream = stream, .front = std::nullopt, .call = call});
  return true;
}

bool HostCalls::Add(const std::shared_ptr<CudaStream>& stream, Event front,
                    const std::function<void(Code)>& call) {
  const MutexLock lock(mutex_);
  if (!HaveThreadFor(stream.get())) return false;
  Append({.stream = stream, .front = std::move(front), .call = call});
  return true;
}

void HostCalls::AddLoose(const std::function<void(Code)>& call) {
  const MutexLock lock(mutex_);
  if (HaveThreadFor(nullptr)) Append({.stream = nullptr, .front = std::nullopt, .call = call});
}

// Starts a thread if the number of threads is below kThreadsMax and below the number of streams
// with calls, including `stream`. Returns false only if no thread exists and none can be started.
bool HostCalls::HaveThreadFor(const CudaStream* stream) {
  std::set<const CudaStream*> streams = {stream};
  for (const Call& each : calls_) streams.insert(each.stream.get());
  return threads_ >= std::min(streams.size(), kThreadsMax) || StartThread() || threads_ != 0;
}

void HostCalls::Append(Call call) {
  call.number = ++last_number_;
  if (call.stream != nullptr) call.stream->CountHostCall(+1);
  calls_.push_back(std::move(call));
  count_.fetch_add(1, std::memory_order_acq_rel);
  added_.notify_one();
}

// Blocks all signals in the thread, because they are meant for the program's own threads.
bool HostCalls::StartThread() {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([this] { Serve(); }).detach();
    ++threads_;
  } catch (const std::system_error&) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return false;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return true;
}

void HostCalls::Serve() {
  is_inside = true;
  MutexLock lock(mutex_);
  for (;;) {
    // Finds the first call of a stream for which no other thread runs a call.
    const auto next =
        std::ranges::find_if(calls_, [&](const Call& call) GPUSHARED_REQUIRES(mutex_) {
          return &call == &*std::ranges::find(calls_, call.stream, &Call::stream) &&
                 !running_.contains(&call);
        });
    if (next == calls_.end()) {
      added_.wait(lock.waitable());
      continue;
    }
    running_.insert(&*next);
    lock.Unlock();
    Run(*next);
    lock.Lock();
    running_.erase(&*next);
    if (next->stream != nullptr) next->stream->CountHostCall(-1);
    count_.fetch_sub(1, std::memory_order_acq_rel);
    std::list<Call> ended;  // Destroyed without the lock: a call may be its stream's last owner.
    ended.splice(ended.begin(), calls_, next);
    ended_.notify_all();
    lock.Unlock();
    ended.clear();
    lock.Lock();
  }
}

void HostCalls::Run(const Call& call) {
  if (call.stream == nullptr) return call.call(Code::kSuccess);
  Session& session = call.stream->context().session();
  const Code code = session.AfterWork(call.front ? call.front->Synchronize() : Status::Ok());
  // A failure that an earlier call has observed precedes this call as well.
  call.call(code == Code::kSuccess ? session.sticky() : code);
}

void HostCalls::AwaitCalls(const std::function<bool(const Call&)>& condition) {
  MutexLock lock(mutex_);
  const std::uint64_t last = last_number_;
  ended_.wait(lock.waitable(), [&]() GPUSHARED_REQUIRES(mutex_) {
    return std::ranges::none_of(
        calls_, [&](const Call& call) { return call.number <= last && condition(call); });
  });
}

void HostCalls::Await(const CudaStream& stream) {
  if (!stream.has_host_calls() || is_inside) return;
  AwaitCalls([&](const Call& call) { return call.stream.get() == &stream; });
}

// The context's lock need not be held during the wait, because work that is submitted to other
// streams in the meantime need not be awaited.
void HostCalls::AwaitBefore(const CudaStream& stream) {
  Await(stream);
  for (const auto& other : stream.context().OrderedBefore(stream)) Await(*other);
}

void HostCalls::Await(const Context& context) {
  if (is_inside) return;
  AwaitCalls([&](const Call& call) {
    return call.stream != nullptr && &call.stream->context() == &context;
  });
}

}  // namespace gpushared::drop_in
